r"""A static risk measure as a reward, for algorithms that know nothing of risk.

With h held, $\mathbb{E}[h(G)]$ is what an algorithm maximises that is paid $h(s') - h(s)$ at each
step and does not discount: the sum over an episode is $h(G) - h(0)$. With s shown in the
observation this is a Markov decision process like any other. `update` then moves h to the closed
form of the returns that were achieved (Theorem 1), which is the outer step of Algorithm 1.
"""

import collections
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from downside.envs.gymnasium.flatten import flat_space, flatten, flatten_batch
from downside.envs.memory import Memory, check_memory
from downside.envs.memory_env import append_to_box
from downside.envs.wrappers.vector_memory_aware import autoreset_mode, reset_some, with_final
from downside.risk import AbstractSpectralRisk, as_risk
from downside.risk.mixture import CVaRMixture

_CELLS = 64
"""Bends of h for a measure that is no mixture of a few CVaRs."""
_LARGEST = float(np.finfo(np.float32).max)


class MovingUtility:
    """The h of some episodes, one after the other, and the returns from which it is moved.

    `bends` are the knots of h; None as long as it is a line, which is the mean.
    """

    def __init__(self, risk: AbstractSpectralRisk, episodes: int):
        table = CVaRMixture.of(risk, _CELLS)
        parts = (table.levels, table.drops)
        self.levels, self.drops = (np.asarray(part, np.float64) for part in parts)
        self.linear = float(table.linear)
        self.bends: np.ndarray | None = None
        self.unit = 1.0
        """The spread of the returns, in which the observation shows the accumulated reward."""
        self.worth = 1.0
        """The spread of h over the returns, in which increments of h are paid."""
        self.returns: collections.deque[float] = collections.deque(maxlen=episodes)
        middle = len(self.levels) // 2
        self.shown = sorted({0, middle, len(self.levels) - 1} & set(range(len(self.levels))))
        """The bends from which the observation shows how far away the accumulated reward is."""

    def from_returns(self, returns: np.ndarray) -> tuple[np.ndarray, float, float]:
        """The bends of the closed form of h for these returns, their spread, and that of h."""
        ordered = np.sort(returns)
        index = np.floor(self.levels * len(ordered) + 1e-4).astype(int)
        bends = ordered[np.minimum(index, len(ordered) - 1)]
        worth = self.value(ordered, bends[None], np.zeros(1, bool))
        return bends, max(float(ordered.std()), 1e-6), max(float(worth.std()), 1e-6)

    def value(
        self, accumulated: np.ndarray, bends: Float[np.ndarray, "n k"], neutral: np.ndarray
    ) -> np.ndarray:
        """H at the accumulated reward of each row, less a constant; a line where `neutral`."""
        short = np.minimum(accumulated[:, None] - bends, 0.0) @ self.drops
        return np.where(neutral, accumulated, self.linear * accumulated + short)


class _Rewards:
    """The memory of some copies, what they are paid, and what they are shown."""

    def __init__(
        self,
        risk: AbstractSpectralRisk | str,
        gamma: float,
        episodes: int,
        scale: float,
        count: int,
    ):
        check_memory(gamma, scale)
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 2:
            raise ValueError(f"`episodes` must be a whole number of at least 2, got {episodes!r}.")
        self.utility = MovingUtility(as_risk(risk), episodes)
        self.gamma, self.scale, self.count = gamma, scale, count
        self.memory = Memory.initial(count)
        self._bends = np.zeros((count, len(self.utility.levels)))
        self._neutral, self._units = np.ones(count, bool), np.ones(count)
        self._worths = np.ones(count)
        self.totals, self.lengths = np.zeros(count), np.zeros(count, int)

    @property
    def size(self) -> int:
        """How many numbers are appended."""
        return 2 + len(self.utility.shown)

    def start(self, chosen: Bool[np.ndarray, " n"]) -> None:
        """New episodes, under the present h."""
        self.memory = self.memory.reset_where(chosen)
        utility = self.utility
        if utility.bends is not None:
            self._bends[chosen], self._neutral[chosen] = utility.bends, False
        self._units[chosen], self._worths[chosen] = utility.unit, utility.worth
        self.totals[chosen], self.lengths[chosen] = 0.0, 0

    def pay(
        self, rewards: np.ndarray, stepped: Bool[np.ndarray, " n"], done: Bool[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """What to pay instead of `rewards`; 0 where nothing was `stepped`."""
        before = np.array(self.memory.accumulated)
        paid = np.where(stepped, np.asarray(rewards, np.float64), 0.0)
        self.memory = self.memory.update(paid, np.where(stepped, self.gamma, 1.0))
        self.totals = self.totals + paid
        self.lengths = self.lengths + stepped
        after = np.asarray(self.memory.accumulated)
        self.utility.returns.extend(after[done & stepped].tolist())
        value = self.utility.value
        worth = value(after, self._bends, self._neutral) - value(before, self._bends, self._neutral)
        return self.scale * worth / self._worths

    def show(self) -> Float[np.ndarray, "n m"]:
        """The accumulated reward from 0 and from bends of h, in units of the spread of returns; and
        the discount so far."""
        accumulated = np.asarray(self.memory.accumulated)
        shown = self.utility.shown
        columns = [accumulated[:, None], accumulated[:, None] - self._bends[:, shown]]
        numbers = np.concatenate(columns, axis=1) / self._units[:, None]
        discount = np.asarray(self.memory.discount_so_far)[:, None]
        return np.concatenate([numbers, discount], axis=1).astype(np.float32)

    def space(self, space: gym.Space) -> gym.spaces.Box:
        """Of observations: flat, with what `show` appends."""
        low, high = (-_LARGEST,) * (self.size - 1), (_LARGEST,) * (self.size - 1)
        return append_to_box(flat_space(space), (*low, 0.0), (*high, 1.0))

    def ended(self, i: int) -> dict[str, float]:
        """What an episode earned in truth."""
        return {
            "r": float(self.totals[i]),
            "g": float(np.asarray(self.memory.accumulated)[i]),
            "l": int(self.lengths[i]),
        }


class _Movable:
    """What the wrappers for one and for many environments share."""

    rewards: _Rewards

    def update(self, rate: float = 1.0, least: int = 100) -> bool:
        """Moves h to the returns that were achieved lately; it holds for episodes that start later.

        Arguments:
            rate: how much of the way, in (0, 1]; the first time all of it.
            least: episodes without which nothing is moved.

        Returns:
            Whether h was moved.
        """
        utility = self.rewards.utility
        if len(utility.returns) < least:
            return False
        self.move(*utility.from_returns(np.array(utility.returns)), rate)
        return True

    def move(self, bends: Any, unit: float = 1.0, worth: float = 1.0, rate: float = 1.0) -> None:
        """Moves h to these bends. The first time also sets the units in which the accumulated
        reward is shown, and in which increments of h are paid: they then stay."""
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"`rate` must be in (0, 1], got {rate!r}.")
        utility, new = self.rewards.utility, np.asarray(bends, np.float64)
        if utility.bends is None:
            utility.unit, utility.worth, utility.bends = unit, worth, new
        else:
            utility.bends = utility.bends + rate * (new - utility.bends)

    def take_returns(self) -> list[float]:
        """The discounted returns of the latest episodes, which are then forgotten."""
        returns = list(self.rewards.utility.returns)
        self.rewards.utility.returns.clear()
        return returns

    @property
    def utility_bends(self) -> np.ndarray | None:
        """Where h bends; None as long as it is a line."""
        return self.rewards.utility.bends


class RiskReward(_Movable, gym.Wrapper, gym.utils.RecordConstructorArgs):
    r"""Pays the increments of the utility h instead of the reward: any algorithm then optimises a
    static spectral risk measure.

    $s' = s + c\,r$, $c' = \gamma c$ from (0, 1); paid is $h(s') - h(s)$, whose sum over an episode
    is $h(G) - h(0)$. The algorithm must not discount it: set its `gamma` to 1. The observation is
    flattened, and followed by s in units of the spread of returns, s less up to three bends of h in
    these units, and c. From the first `update` on, increments are paid in units of the spread of
    h over the returns: algorithms then see returns of size 1, however steep h is.

    At first h is a line, which is the mean. `update()` moves it to the closed form for the returns
    achieved lately; call it every few hundred episodes, after about a tenth of the training. For
    stable-baselines3 `ds.RiskRewardCallback()` does so.

    `info["original"]` of the last step of an episode has the sum of its rewards ("r"), its
    discounted return ("g") and its length ("l").

    Calling it on a `VectorEnv` gives a `VectorRiskReward`.
    """

    def __new__(cls, env: Any, *args: Any, **kwargs: Any) -> Any:
        """Choose the version for the kind of environment."""
        if isinstance(env, VectorEnv):
            return VectorRiskReward(env, *args, **kwargs)
        if not isinstance(env, gym.Env):
            raise TypeError(
                "`env` must be a Gymnasium environment or a vector of them, got "
                f"{env!r}. `gymnasium.make` gives one from an id."
            )
        return super().__new__(cls)

    def __init__(
        self,
        env: gym.Env,
        risk: AbstractSpectralRisk | str,
        *,
        gamma: float = 1.0,
        episodes: int = 1000,
        reward_scale: float = 1.0,
    ):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env` or `VectorEnv`.
            risk: The measure, or its text.
            gamma: Discount γ of the return that is measured, in (0, 1].
            episodes: How many of the latest returns `update` looks at.
            reward_scale: What is paid is multiplied by this.
        """
        gym.utils.RecordConstructorArgs.__init__(
            self, risk=risk, gamma=gamma, episodes=episodes, reward_scale=reward_scale
        )
        gym.Wrapper.__init__(self, env)
        self.rewards = _Rewards(risk, gamma, episodes, reward_scale, 1)
        self._inner_space = env.observation_space
        self.observation_space = self.rewards.space(env.observation_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " d"], dict[str, Any]]:
        """Start an episode, under the present h."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.rewards.start(np.ones(1, bool))
        return self._observe(observation), info

    def step(self, action: Any) -> tuple[Float[np.ndarray, " d"], Any, bool, bool, dict[str, Any]]:
        """Act; the increment of h is returned as the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        done = np.array([bool(terminated) or bool(truncated)])
        paid = self.rewards.pay(np.array([float(reward)]), np.ones(1, bool), done)
        if done[0]:
            info = {**info, "original": self.rewards.ended(0)}
        return self._observe(observation), float(paid[0]), terminated, truncated, info

    def _observe(self, observation: Any) -> Float[np.ndarray, " d"]:
        return np.concatenate([flatten(self._inner_space, observation), self.rewards.show()[0]])


class VectorRiskReward(_Movable, VectorWrapper):
    """`RiskReward` for a vector environment, in every autoreset mode.

    `infos["original"]` has the arrays "r", "g" and "l", and `infos["_original"]` says for which
    copies they hold: those whose episode ended in this step.
    """

    def __init__(
        self,
        env: VectorEnv,
        risk: AbstractSpectralRisk | str,
        *,
        gamma: float = 1.0,
        episodes: int = 1000,
        reward_scale: float = 1.0,
    ):
        """Wrap `env`; the arguments are those of `RiskReward`."""
        VectorWrapper.__init__(self, env)
        self.rewards = _Rewards(risk, gamma, episodes, reward_scale, self.num_envs)
        self._mode = autoreset_mode(env)
        self.single_observation_space = self.rewards.space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._over = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "n d"], dict[str, Any]]:
        """Start episodes, in those copies that are reset."""
        observations, infos, chosen = reset_some(self.env, seed, options)
        self.rewards.start(chosen)
        self._over = self._over & ~chosen
        return self._observe(observations), infos

    def step(
        self, actions: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act; the increments of h are returned as the rewards."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        # With NEXT_STEP, copies whose episode was over have just been reset, not stepped.
        stepped = ~self._over if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(done)
        paid = self.rewards.pay(rewards, stepped, done)
        if done.any():
            infos = {**infos, "original": self._originals(), "_original": done.copy()}
        if self._mode is AutoresetMode.NEXT_STEP:
            self.rewards.start(self._over)
            self._over = done
        elif self._mode is AutoresetMode.SAME_STEP and done.any():
            infos = with_final(self.env, infos, done, self._final)
            self.rewards.start(done)
        return self._observe(observations), paid, terminated, truncated, infos

    def _originals(self) -> dict[str, np.ndarray]:
        return {
            "r": self.rewards.totals.copy(),
            "g": np.array(self.rewards.memory.accumulated),
            "l": self.rewards.lengths.copy(),
        }

    def _observe(self, observations: Any) -> Float[np.ndarray, "n d"]:
        flat = flatten_batch(self.env, observations)
        return np.concatenate([flat, self.rewards.show()], axis=1)

    def _final(self, i: int, last: Any) -> Float[np.ndarray, " d"]:
        flat = flatten(self.env.single_observation_space, last)
        return np.concatenate([flat, self.rewards.show()[i]])
