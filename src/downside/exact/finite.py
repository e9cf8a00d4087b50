r"""Finite problems, solved exactly: nodes (time, state, accumulated reward) and a recursion."""

from collections.abc import Callable
from typing import final

import numpy as np
from jaxtyping import Float

from downside.exact.mdp import FiniteMDP
from downside.exact.node_policy import LaterReturn, NodePolicy, Rule
from downside.exact.nodes import ROUNDING, Arrivals, Nodes, enumerate_nodes
from downside.exact.problem import AbstractFiniteProblem, Solution
from downside.risk import AbstractSpectralRisk, Distribution, Utility

_TIE = 1e-13
"""Actions whose values differ by less than this, relative to the largest value, are as good.

It is above what rounding makes of equal values, or ties would not be broken by the lowest number.
"""

_BLOCK = 2**22
"""How many numbers the recursion gathers at once."""


@final
class FiniteProblem(AbstractFiniteProblem):
    r"""A finite Markov decision process as a problem for the outer search.

    For a fixed h the optimal policy depends on the history through the time, the state and the
    accumulated discounted reward alone (section 3.2), so the recursion (Lemma 1 of appendix B)

    $V_t(x, s) = \max_a \mathbb{E}[V_{t+1}(X', s + \gamma^t R)]$, with $V(x, s) = h(s)$ at the end,

    runs over the nodes (t, x, s) that can be reached. They are listed once; a solve is then a few
    array operations for each time step.

    Arguments:
        mdp: the problem. An endless one is cut (see `tolerance`).
        max_nodes: the most nodes, in all, and 16 times as many edges. Listing two million takes up
            to ten seconds and 1.5 GB. A problem that has more is refused; `solve` then puts its
            rewards on a lattice (`lattice.py`).
        tolerance: how much of a return may be lost where an endless problem is cut; by default
            a ten-thousandth of the largest one.

    `return_error` bounds by how much a return of the problem as it is solved can differ from the
    true one, on every path and for every policy: what is cut off at the end. Hence, with
    $\epsilon$ = `return_error`:

    - $|\max_\pi \mathbb{E}[h(G)] - \max_\pi \mathbb{E}[h(\tilde G)]| \le \phi(0)\, \epsilon$,
      because h rises by at most $\phi(0)$ per unit, and both maxima are over the same policies
      (those that depend on the history);
    - $|\max_\pi \rho(G) - \max_\pi \rho(\tilde G)| \le \epsilon$ without the factor, because
      $\tilde G - \epsilon \le G \le \tilde G + \epsilon$ and a risk measure is monotone and moves
      with a sure amount.
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        *,
        max_nodes: int = 2_000_000,
        tolerance: float | None = None,
    ):
        if not isinstance(mdp, FiniteMDP):
            raise TypeError(
                f"`mdp` must be a FiniteMDP, got {mdp!r}. FiniteMDP.from_gymnasium makes one of an "
                "environment with a table."
            )
        if isinstance(max_nodes, bool) or not isinstance(max_nodes, int) or max_nodes < 1:
            raise ValueError(
                f"`max_nodes` must be a whole number of at least 1, got {max_nodes!r}."
            )
        self._mdp = mdp
        self._truncation = mdp.truncation(tolerance)
        self._arrivals = Arrivals.of(mdp)
        self._nodes = enumerate_nodes(
            mdp, self._arrivals, self._truncation.horizon, max_nodes=max_nodes
        )

    # --- what is solved -------------------------------------------------------------------------

    @property
    def mdp(self) -> FiniteMDP:
        """The problem as it was given."""
        return self._mdp

    @property
    def horizon(self) -> int:
        """The number of decisions that are looked at."""
        return self._truncation.horizon

    @property
    def nodes(self) -> Nodes:
        """The nodes (time, state, accumulated reward)."""
        return self._nodes

    @property
    def exact(self) -> bool:
        """Whether nothing was cut off: the values are exact up to rounding."""
        return self._truncation.error == 0.0

    @property
    def return_error(self) -> float:
        """How far any return can be from the true one; see the class."""
        return self._truncation.error

    def error_bound(self, objective: Utility | AbstractSpectralRisk) -> float:
        r"""How far the optimum of an objective can be from the true one; see the class.

        `return_error` for a risk measure, and $\phi(0)$, the steepest slope, times that for an h.
        """
        if not isinstance(objective, Utility):
            return self.return_error
        steepest = float(np.asarray(objective.linear) + np.asarray(objective.drops).sum())
        return steepest * self.return_error

    @property
    def attainable_returns(self) -> Float[np.ndarray, " n"]:
        """Every return that some policy can end with, in increasing order.

        The best knots of a finite sum of CVaRs are among them: for a fixed policy E[h(G)] is
        piecewise linear and concave in each knot, with bends at the returns of that policy.
        """
        ends = [level.accumulated[: level.over] for level in self._nodes.levels]
        returns = np.unique(np.concatenate(ends))
        slack = ROUNDING * np.abs(returns).max()
        return returns[np.concatenate([[True], np.diff(returns) > slack])]

    @property
    def return_range(self) -> tuple[float, float]:
        """The smallest and the largest return that any policy can end with."""
        attainable = self.attainable_returns
        return float(attainable[0]), float(attainable[-1])

    # --- the best policy for a fixed h ----------------------------------------------------------

    def solve(self, utility: Utility) -> Solution:
        """The optimum for a fixed h, by backward recursion. Of equal actions the first is taken."""
        worth = _on_the_host(utility)
        levels = self._nodes.levels
        values, actions = worth(levels[-1].accumulated), []
        for level in reversed(levels[:-1]):
            best, action = self._decide(level.states[level.over :], level.children, values)
            values = np.concatenate([worth(level.accumulated[: level.over]), best])
            actions.append(action)
        policy = NodePolicy(self._nodes, tuple(reversed(actions)))
        return Solution(float(self._nodes.start @ values), policy)

    def lookahead(self, utility: Utility, steps: int) -> Solution:
        r"""The policy that at every node looks only k = `steps` decisions beyond the present one.

        It is greedy with respect to $V_k(x, s, c) = \max_\pi \mathbb{E}[h(s + c \sum_{t=0}^k
        \gamma^t R_t)]$ (Lemma 2 of appendix B); the value is $V_k$ at the start. With rewards that
        are never negative the policy attains at least this, and $V_k$ is within
        $\phi(0) \gamma^{k+1} G_{\max}$ of the optimum (Theorem 1).

        Differs: the appendix starts from $G_0 = 0$ and yet counts k + 1 rewards in $V_k$; here
        $V_0$ counts one reward, as the sum says, or the bound would be off by one power of γ.
        """
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ValueError(f"`steps` must be a whole number of at least 0, got {steps!r}.")
        worth = _on_the_host(utility)
        levels = self._nodes.levels
        values = [worth(level.accumulated) for level in levels]
        actions = []
        for _ in range(min(steps + 1, self.horizon)):
            actions = []
            for time, level in enumerate(levels[:-1]):  # level t reads level t + 1 of the last pass
                best, action = self._decide(
                    level.states[level.over :], level.children, values[time + 1]
                )
                values[time] = np.concatenate([values[time][: level.over], best])
                actions.append(action)
        policy = NodePolicy(self._nodes, tuple(actions))
        return Solution(float(self._nodes.start @ values[0]), policy)

    def _decide(
        self, states: np.ndarray, children: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each node, the value of its best action and which one it is."""
        mdp, ways = self._mdp, self._arrivals.ways
        best = np.empty(states.size)
        action = np.empty(states.size, dtype=np.int32)
        block = max(1, _BLOCK // ways[0].size)
        slack = _TIE * np.abs(values).max(initial=0.0)
        for begin in range(0, states.size, block):
            part = slice(begin, begin + block)
            x = states[part]
            ahead = np.take_along_axis(
                values[children[part]], ways[x].reshape(x.size, -1), axis=1
            ).reshape(x.size, *ways.shape[1:])
            scores = np.einsum("nak,nak->na", mdp.probabilities[x], ahead)
            scores[~mdp.action_mask[x]] = -np.inf
            best[part] = scores.max(axis=1)
            action[part] = np.argmax(scores >= best[part, None] - slack, axis=1)
        return best, action

    # --- what a policy returns ------------------------------------------------------------------

    def returns(self, policy: NodePolicy | Rule) -> Distribution:
        """The distribution of the discounted return of a policy.

        Arguments:
            policy: one that `solve` gave, or any function of (time, state, accumulated reward) that
                gives an action: memoryless and stationary policies too.
        """
        return self._returns_from(0, self._nodes.start, policy)

    def simulate(
        self, policy: NodePolicy | Rule, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes; an endless problem is cut as for `solve`."""
        rng = np.random.default_rng(seed)
        mdp, ways = self._mdp, self._arrivals.ways
        chances = np.cumsum(mdp.probabilities, axis=2)
        last = np.count_nonzero(mdp.probabilities, axis=2) - 1  # 1 can be missed by rounding
        node = rng.choice(self._nodes.start.size, size=episodes, p=self._nodes.start)
        total, running = np.zeros(episodes), np.arange(episodes)
        for time, level in enumerate(self._nodes.levels[:-1]):
            running = running[node[running] >= level.over]
            here = node[running]
            mass = np.bincount(here, minlength=level.states.size).astype(float)
            x, action = level.states[here], self._actions(time, mass, policy)[here - level.over]
            drawn = (rng.random(running.size)[:, None] >= chances[x, action]).sum(axis=1)
            outcome = np.minimum(drawn, last[x, action])
            total[running] += mdp.gamma**time * mdp.rewards[x, action, outcome]
            node[running] = level.children[here - level.over, ways[x, action, outcome]]
        return total

    def later_returns(self, policy: NodePolicy | Rule, time: int) -> tuple[LaterReturn, ...]:
        """For each node that the policy reaches at `time`: what it has and what it still expects.

        This is what Theorem 2 needs. Episodes that have ended before `time` are left out, so the
        probabilities sum to the share of episodes that still run. Costs a pass over the later
        nodes for each node: for small problems.
        """
        self._check_time(time)
        mass = self._nodes.start
        for earlier in range(time):
            mass = self._pass_on(earlier, mass, policy)
        level, discount = self._nodes.levels[time], self._mdp.gamma**time
        reached = []
        for node in level.over + np.flatnonzero(mass[level.over :]):
            alone = np.zeros(mass.size)
            alone[node] = 1.0
            so_far = float(level.accumulated[node])
            whole = self._returns_from(time, alone, policy)
            reached.append(
                LaterReturn(
                    probability=float(mass[node]),
                    state=int(level.states[node]),
                    accumulated=so_far,
                    discount_so_far=discount,
                    action=int(self._actions(time, alone, policy)[node - level.over]),
                    returns=whole.affine(-so_far / discount, 1.0 / discount),
                )
            )
        return tuple(reached)

    def returns_after(
        self, policy: NodePolicy | Rule, time: int, state: int, accumulated: float
    ) -> dict[int, Distribution]:
        """For each action that is allowed at a node: the return to come, discounted to `time`, of
        taking it and following the policy from then on.

        The node is the one of that time and state whose accumulated reward is nearest.
        """
        self._check_time(time)
        mdp, level = self._mdp, self._nodes.levels[time]
        node = level.nearest(state, accumulated)
        if node is None:
            raise ValueError(
                f"`state` must be one that can be reached at time {time}, got {state}."
            )
        so_far, discount = float(level.accumulated[node]), mdp.gamma**time
        size, by_action = self._nodes.levels[time + 1].states.size, {}
        for action in np.flatnonzero(mdp.action_mask[state]):
            children = level.children[node - level.over, self._arrivals.ways[state, action]]
            chances = mdp.probabilities[state, action]
            spread = np.bincount(children, weights=chances, minlength=size)
            whole = self._returns_from(time + 1, spread, policy)
            by_action[int(action)] = whole.affine(-so_far / discount, 1.0 / discount)
        return by_action

    def node(self, time: int, state: int, accumulated: float) -> tuple[int, int, int]:
        """Time, state, and the number of the nearest node of the two."""
        return time, state, self._nodes.levels[time].nearest(state, accumulated) or 0

    def _returns_from(self, time: int, mass: np.ndarray, policy: NodePolicy | Rule) -> Distribution:
        """The return, reward so far included, of episodes that are spread over a level like `mass`.

        Episodes that are already over count with what they have.
        """
        values, shares = [], []
        for later in range(time, self.horizon + 1):
            level = self._nodes.levels[later]
            ended = np.flatnonzero(mass[: level.over])
            values.append(level.accumulated[ended])
            shares.append(mass[ended])
            if later < self.horizon:
                mass = self._pass_on(later, mass, policy)
        return Distribution(np.concatenate(values), np.concatenate(shares)).merged()

    def _pass_on(self, time: int, mass: np.ndarray, policy: NodePolicy | Rule) -> np.ndarray:
        """How the episodes of one level are spread over the next."""
        mdp, ways = self._mdp, self._arrivals.ways
        level = self._nodes.levels[time]
        running = np.flatnonzero(mass[level.over :])
        x = level.states[level.over + running]
        action = self._actions(time, mass, policy)[running]
        children = np.take_along_axis(level.children[running], ways[x, action], axis=1)
        share = mass[level.over + running, None] * mdp.probabilities[x, action]
        size = self._nodes.levels[time + 1].states.size
        return np.bincount(children.ravel(), weights=share.ravel(), minlength=size)

    def _actions(self, time: int, mass: np.ndarray, policy: NodePolicy | Rule) -> np.ndarray:
        """The policy's action at each running node of a level; asked for only where mass is."""
        if isinstance(policy, NodePolicy) and policy.nodes is self._nodes:
            return policy.actions[time]
        level = self._nodes.levels[time]
        actions = np.zeros(level.children.shape[0], dtype=np.int32)
        for node in np.flatnonzero(mass[level.over :]):
            state = int(level.states[level.over + node])
            action = policy(time, state, float(level.accumulated[level.over + node]))
            if action not in range(self._mdp.num_actions):
                raise ValueError(
                    f"`policy` must give an action in [0, {self._mdp.num_actions - 1}], got "
                    f"{action!r} at time {time} in state {state}."
                )
            if not self._mdp.action_mask[state, action]:
                raise ValueError(
                    f"`policy` must give an action that is allowed, got {action} at time {time} in "
                    f"state {state}; there {np.flatnonzero(self._mdp.action_mask[state])} are."
                )
            actions[node] = action
        return actions


def _on_the_host(utility: Utility) -> Callable[[np.ndarray], np.ndarray]:
    """H in NumPy and 64 bits, whatever it was made of."""
    if not isinstance(utility, Utility):
        raise TypeError(
            f"`utility` must be a Utility, got {utility!r}. `risk.utility(distribution)` and "
            "`risk.utility_at(knots)` make one."
        )
    parts = (utility.knots, utility.drops, utility.linear, utility.offset)
    knots, drops, linear, offset = (np.asarray(part, dtype=np.float64) for part in parts)
    utility = Utility(knots, drops, linear=linear, offset=offset)
    return lambda accumulated: np.asarray(utility(accumulated))
