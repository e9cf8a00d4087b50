"""Finite Markov decision processes as arrays."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from downside._arrays import real
from downside._typing import ArrayLike
from downside.envs.problems.finite._outcomes import Outcomes, as_horizon, pack_outcomes
from downside.envs.problems.finite.cliff_walk import Tables
from downside.envs.problems.finite.tabular import Tabular
from downside.exact.csv_tables import read_transitions, write_transitions

_CUT = 1e-4
"""How much of the largest return is lost by default when an endless problem is cut."""

_PASSES = 10_000


class Truncation(NamedTuple):
    """Where an endless problem is cut, and what that can cost."""

    horizon: int
    """The number of decisions that are kept."""
    error: float
    r"""No return moves by more, hence no risk value either; E[h(G)] by up to $\phi(0)$ times it."""


class FiniteMDP(eqx.Module):
    r"""Finitely many states and actions; every action in a state has finitely many outcomes.

    An outcome is a probability, the state it leads to, a reward, and whether the episode is over
    then. Two outcomes may lead to the same state with different rewards.

    Arguments:
        probabilities: `[S, A, K]`, the probability of outcome k of action a in state s.
        rewards: `[S, A, K]`, or `[S, A]` where the outcome does not matter.
        terminal: `[S]`, the states in which an episode is over. Their rows are never used.
        start: the state that episodes start in, or a probability for each state.
        gamma: the discount factor, in (0, 1].
        horizon: the number of decisions of an episode; None if it only ends in terminal states,
            which needs `gamma` < 1.
        action_mask: `[S, A]`, the actions that are allowed; all of them if left out.
        next_states: `[S, A, K]`, the state that outcome k leads to. Left out, K = S and outcome k
            leads to state k: the usual transition matrices.
        ends: `[S, A, K]`, whether the episode is over after the outcome, if that does not follow
            from the state that it leads to.

    Outcomes are packed: those of probability 0 are dropped, and K is what the richest action needs.
    """

    probabilities: Float[np.ndarray, "S A K"]
    """Probability of each outcome, 0 where an action has fewer than K of them."""
    next_states: Int[np.ndarray, "S A K"]
    """The state that the outcome leads to."""
    rewards: Float[np.ndarray, "S A K"]
    """The reward of the outcome."""
    ends: Bool[np.ndarray, "S A K"]
    """Whether the episode is over after the outcome."""
    terminal: Bool[np.ndarray, " S"]
    """States in which an episode is over."""
    start: Float[np.ndarray, " S"]
    """How likely an episode starts in each state."""
    action_mask: Bool[np.ndarray, "S A"]
    """The actions that are allowed in each state."""
    gamma: float
    """Discount factor, in (0, 1]."""
    horizon: int | None
    """The number of decisions of an episode, if it is bounded."""

    def __init__(
        self,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        terminal: Any = None,
        start: Any = 0,
        *,
        gamma: Any,
        horizon: Any = None,
        action_mask: Any = None,
        next_states: Any = None,
        ends: Any = None,
    ):
        packed = pack_outcomes(
            probabilities,
            rewards,
            terminal,
            start,
            action_mask=action_mask,
            next_states=next_states,
            ends=ends,
        )
        for name, array in packed._asdict().items():
            setattr(self, name, array)
        self.gamma, self.horizon = _discounting(gamma, horizon)

    @property
    def num_states(self) -> int:
        """The number of states."""
        return self.probabilities.shape[0]

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return self.probabilities.shape[1]

    @property
    def largest_return(self) -> float:
        r"""A bound on the size of the return from any state, on any path; needs `gamma` < 1.

        $W(x) = \max_{a, k} (R + \gamma W(X'))$ over the outcomes, and the same with min, iterated
        from $\pm R_{\max} / (1 - \gamma)$, from where it only gets tighter. It is much smaller
        than that if large rewards come but once, as at a goal.
        """
        bounds = []
        for sign in (1.0, -1.0):
            rewards = np.where(self.probabilities > 0, sign * self.rewards, -np.inf)
            carried = np.where(self.ends, 0.0, self.gamma)
            best = np.full(self.num_states, np.abs(self.rewards).max() / (1.0 - self.gamma))
            for _ in range(min(_PASSES, math.ceil(math.log(1e-3) / math.log(self.gamma)))):
                outcomes = rewards + carried * best[self.next_states]
                best = np.maximum(outcomes.max(axis=(1, 2)), 0.0)
            bounds.append(float(best.max()))
        return max(bounds)

    def truncation(self, tolerance: float | None = None) -> Truncation:
        r"""The smallest horizon T with $\gamma^T W \le$ `tolerance`, W the `largest_return`.

        What is cut off is $\sum_{t \ge T} \gamma^t R_t$, on every path at most that. A measure is
        monotone and moves with a sure amount, so its value changes by no more; E[h(G)] changes by
        up to $\phi(0)$ times as much, the Lipschitz constant of h (appendix B).

        By default the tolerance is a ten-thousandth of W.
        """
        if tolerance is not None:
            tolerance = real(tolerance, "tolerance")
            if not tolerance > 0.0:
                raise ValueError(
                    f"`tolerance` must be positive, got {tolerance}. It is how much of a return "
                    "may be lost by cutting an endless problem."
                )
        if self.horizon is not None:
            return Truncation(self.horizon, 0.0)
        whole = self.largest_return
        share = _CUT if tolerance is None else tolerance / max(whole, tolerance)
        steps = max(1, math.ceil(math.log(share) / math.log(self.gamma)))
        return Truncation(steps, self.gamma**steps * whole)

    @classmethod
    def from_tables(
        cls, tables: Tables, *, gamma: float, horizon: int | None = None
    ) -> "FiniteMDP":
        """The problem of `CliffWalk.tables()`, which say nothing of discounting and time limits."""
        probabilities, rewards, terminal, start = tables
        return cls(probabilities, rewards, terminal, start, gamma=gamma, horizon=horizon)

    @classmethod
    def from_csv(
        cls, path: str | Path, *, gamma: float, start: int, horizon: int | None = None
    ) -> "FiniteMDP":
        """The problem in a file with one row for each transition.

        The header is `idstatefrom,idaction,idstateto,probability,reward`. Ids begin with 0 or 1.
        Rows may repeat a transition with other rewards. An action without rows in a state is not
        allowed there.

        Arguments:
            path: the file.
            gamma: the discount factor.
            start: the id, as in the file, of the state that episodes start in.
            horizon: the number of decisions; None for endless ones.
        """
        arrays, first = read_transitions(path)
        states = arrays["probabilities"].shape[0]
        if isinstance(start, bool) or not isinstance(start, int | np.integer):
            raise TypeError(f"`start` must be the id of a state, got {start!r}.")
        if not first <= start < first + states:
            raise ValueError(
                f"`start` must be a state's id in [{first}, {first + states - 1}], as in {path}, "
                f"got {start}."
            )
        return cls(**arrays, start=int(start) - first, gamma=gamma, horizon=horizon)

    def to_csv(self, path: str | Path, *, first: int = 0) -> None:
        """Writes the transitions, in the format of `from_csv`, ids beginning with `first`.

        The format has no place for `gamma`, `start` and `horizon`; a terminal state is written as
        one that stays where it is and pays 0.
        """
        write_transitions(path, self, first=first)

    @classmethod
    def from_environment(cls, env: Tabular, *, gamma: float) -> "FiniteMDP":
        """The problem of a `Tabular` environment, which says nothing of discounting.

        Its horizon is the end of the problem, also where the environment calls it a truncation.
        """
        return cls(**env.outcomes._asdict(), gamma=gamma, horizon=env.horizon)

    def environment(self) -> Tabular:
        """The problem as an environment, to be learned; discounting is left to the agent.

        Its episodes terminate at the `horizon`, and the time is observed, because what is best
        depends on it.
        """
        arrays = {name: getattr(self, name) for name in Outcomes._fields}
        return Tabular(**arrays, horizon=self.horizon)

    @classmethod
    def from_gymnasium(
        cls, env: Any, *, gamma: float, horizon: int | None = None, start: Any = None
    ) -> "FiniteMDP":
        """The problem of a Gymnasium environment with a table, such as FrozenLake or Taxi.

        Arguments:
            env: an environment whose `unwrapped.P[state][action]` lists the outcomes
                (probability, next state, reward, terminated).
            gamma: the discount factor.
            horizon: the number of decisions; the environment's own time limit is not taken over,
                because it lies in a wrapper and is not part of the table.
            start: the state to start in, or probabilities; by default the environment's
                `initial_state_distrib`.
        """
        bare = getattr(env, "unwrapped", env)
        table = getattr(bare, "P", None)
        if not isinstance(table, Mapping | Sequence) or not len(table):
            raise TypeError(
                f"`env` must have a table `P[state][action]` of outcomes, got {env!r}. FrozenLake, "
                "Taxi, CliffWalking and other toy-text environments have one."
            )
        if start is None:
            start = getattr(bare, "initial_state_distrib", None)
        if start is None:
            raise ValueError(
                f"`start` must be given, because {env!r} has no `initial_state_distrib`."
            )
        rows = [[table[s][a] for a in range(len(table[s]))] for s in range(len(table))]
        actions = max(len(row) for row in rows)
        most = max(len(outcomes) for row in rows for outcomes in row)
        columns = np.zeros((4, len(rows), actions, most))
        mask = np.zeros((len(rows), actions), dtype=bool)
        for s, row in enumerate(rows):
            for a, outcomes in enumerate(row):
                mask[s, a] = True
                for k, outcome in enumerate(outcomes):
                    columns[:, s, a, k] = [float(part) for part in outcome]
        probability, state, reward, over = columns
        return cls(
            probability,
            reward,
            start=start,
            gamma=gamma,
            horizon=horizon,
            action_mask=mask,
            next_states=state.astype(int),
            ends=over.astype(bool),
        )


def _discounting(gamma: Any, horizon: Any) -> tuple[float, int | None]:
    gamma = real(gamma, "gamma")
    if not 0.0 < gamma <= 1.0:
        raise ValueError(
            f"`gamma` must be in (0, 1], got {gamma}. 1 means that a later reward counts in full."
        )
    if horizon is None and gamma == 1.0:
        raise ValueError(
            "`horizon` must be given if `gamma` is 1, got None. Without a discount an episode "
            "that never ends has no return: pass the number of decisions, or `gamma` < 1."
        )
    return gamma, as_horizon(horizon)
