"""The wrappers against simulations by hand, in every autoreset mode."""

import copy
import functools
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces.utils import flatten
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from downside.envs import (
    CliffWalk,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    JaxMemoryAware,
    MeanReversion,
    Memory,
    MemoryAware,
    NoMemoryInput,
    ReturnAware,
    ReturnInput,
    TargetAware,
    TargetInput,
    VectorMemoryAware,
    VectorReturnAware,
    VectorTargetAware,
)
from tests.envs.scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

GAMMA, TARGET, SCALE = 0.5, 7.0, 0.1
COPIES = 3


class Episode:
    """One scripted episode by hand: the time, (s, c) and b after the actions so far."""

    def __init__(self):
        self.time, self.s, self.c, self.b = 0, 0.0, 1.0, TARGET

    def step(self, action):
        reward = self.time + 1 + 10 * action
        self.time += 1
        self.s += self.c * SCALE * reward
        self.c *= GAMMA
        self.b = (self.b - SCALE * reward) / GAMMA
        return reward, action == TERMINATE, action == TRUNCATE

    def shown(self, kind):
        return [self.time, self.s, self.c] if kind is ReturnAware else [self.time, self.b]


def wrap(kind, env) -> Any:
    if kind is ReturnAware:
        return ReturnAware(env, GAMMA, reward_scale=SCALE)
    return TargetAware(env, GAMMA, TARGET, reward_scale=SCALE)


def native(kind, mode):
    return wrap(kind, GymnasiumVectorEnv(Scripted(), COPIES, autoreset_mode=mode))


def sync(kind, mode):
    envs = SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * COPIES, autoreset_mode=mode)
    return wrap(kind, envs)


def sync_of_wrapped(kind, mode):
    make = functools.partial(wrap, kind)
    envs = [lambda: make(GymnasiumEnv(Scripted()))] * COPIES
    return SyncVectorEnv(envs, autoreset_mode=mode)


def native_of_wrapped(kind, mode):
    return GymnasiumVectorEnv(wrap(kind, Scripted()), COPIES, autoreset_mode=mode)


every_kind = pytest.mark.parametrize("kind", [ReturnAware, TargetAware])


@every_kind
@pytest.mark.parametrize("make", [native, sync, sync_of_wrapped, native_of_wrapped])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_autoreset_mode_shows_what_a_simulation_by_hand_shows(kind, make, mode):
    envs: VectorEnv = make(kind, mode)
    observations, _ = envs.reset(seed=0)
    episodes = [Episode() for _ in range(COPIES)]
    over = np.zeros(COPIES, bool)
    np.testing.assert_array_equal(observations, [episode.shown(kind) for episode in episodes])
    rng = np.random.default_rng(1)
    ends = 0
    for _ in range(30):
        actions = rng.choice([GO_ON, TERMINATE, TRUNCATE], p=[0.7, 0.15, 0.15], size=COPIES)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        assert observations in envs.observation_space
        assert observations.dtype == np.float32
        for i in range(COPIES):
            if mode is AutoresetMode.NEXT_STEP and over[i]:
                episodes[i], result = Episode(), (0, False, False)
            else:
                result = episodes[i].step(actions[i])
            assert (rewards[i], terminated[i], truncated[i]) == result
            over[i] = result[1] or result[2]
            ends += over[i]
            if mode is AutoresetMode.SAME_STEP and over[i]:
                final = infos["final_obs"][i]
                np.testing.assert_allclose(final, episodes[i].shown(kind), rtol=1e-6)
                assert infos["_final_obs"][i]
                episodes[i] = Episode()
            np.testing.assert_allclose(observations[i], episodes[i].shown(kind), rtol=1e-6)
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = envs.reset(options={"reset_mask": over.copy()})
            episodes = [Episode() if o else e for o, e in zip(over, episodes, strict=True)]
            expected = [episode.shown(kind) for episode in episodes]
            np.testing.assert_allclose(observations, expected, rtol=1e-6)
    assert ends > 10
    envs.close()


@pytest.mark.slow
def test_an_asynchronous_vector_environment_shows_the_same():
    # On firm ground, walking up pays -1 a step; the copies are truncated after 2 and 3 steps.
    make = functools.partial(gym.make, "downside.envs:downside/CliffWalk-v0", slip=0.0)
    copies = [functools.partial(make, horizon=2), functools.partial(make, horizon=3)]
    envs = ReturnAware(AsyncVectorEnv(copies, context="spawn"), GAMMA)
    assert isinstance(envs, VectorReturnAware)
    observations, _ = envs.reset(seed=0)
    shown = [observations[:, -2:]]
    for _ in range(5):
        observations, *_ = envs.step(np.zeros(2, np.int64))
        shown.append(observations[:, -2:])
    envs.close()
    expected = [
        [(0, 1), (-1, 0.5), (-1.5, 0.25), (0, 1), (-1, 0.5), (-1.5, 0.25)],
        [(0, 1), (-1, 0.5), (-1.5, 0.25), (-1.75, 0.125), (0, 1), (-1, 0.5)],
    ]
    np.testing.assert_array_equal(np.stack(shown, axis=1), expected)


@every_kind
def test_a_single_environment_starts_anew_with_each_reset(kind):
    env, episode = wrap(kind, GymnasiumEnv(Scripted())), Episode()
    np.testing.assert_array_equal(env.reset(seed=0)[0], episode.shown(kind))
    for action in (GO_ON, GO_ON, TRUNCATE):
        reward, *_ = episode.step(action)
        observation, got, *_ = env.step(action)
        np.testing.assert_allclose(observation, episode.shown(kind), rtol=1e-6)
        assert got == reward  # the reward itself is not scaled
    np.testing.assert_array_equal(env.reset()[0], Episode().shown(kind))


def test_the_numbers_of_a_short_episode_by_hand():
    # Rewards 1, 2, 13 with γ = 0.5: s = 1 + 0.5 · 2 + 0.25 · 13 = 5.25 and c = 0.125;
    # b: (7 - 1) / 0.5 = 12, (12 - 2) / 0.5 = 20, (20 - 13) / 0.5 = 14 = (7 - 5.25) / 0.125.
    for env, expected in (
        (ReturnAware(GymnasiumEnv(Scripted()), 0.5), [3.0, 5.25, 0.125]),
        (TargetAware(GymnasiumEnv(Scripted()), 0.5, 7.0), [3.0, 14.0]),
    ):
        env.reset(seed=0)
        env.step(GO_ON)
        env.step(GO_ON)
        np.testing.assert_array_equal(env.step(TERMINATE)[0], np.array(expected, np.float32))


class Spaces(gym.Env):
    """Shows samples of any space; every step pays 1, the third one is the last."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 3, False, {}


SPACES = {
    "box": (spaces.Box(-1.0, 1.0, (2, 3), np.float64), 6),
    "image": (spaces.Box(0, 255, (2, 2), np.uint8), 4),
    "discrete": (spaces.Discrete(4, start=2), 4),
    "multi discrete": (spaces.MultiDiscrete([2, 3]), 5),
    "multi binary": (spaces.MultiBinary(3), 3),
    "dict": (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0.0, 1.0, (2,))), 4),
    "tuple": (spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]), 5),
}


@every_kind
@pytest.mark.parametrize("name", SPACES)
def test_observations_of_every_kind_are_flattened(kind, name):
    space, size = SPACES[name]
    env = wrap(kind, Spaces(space))
    extra = 2 if kind is ReturnAware else 1
    assert env.observation_space.shape == (size + extra,)
    assert env.observation_space.dtype == np.float32
    plain = Spaces(copy.deepcopy(space))
    for got, expected in [
        (env.reset(seed=1)[0], plain.reset(seed=1)[0]),
        (env.step(0)[0], plain.step(0)[0]),
    ]:
        assert got in env.observation_space
        flat = np.asarray(flatten(space, expected), np.float32)
        np.testing.assert_array_equal(got[:size], flat)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_vectors_of_every_kind_of_observation_are_flattened_alike(name, mode):
    space, _ = SPACES[name]

    def vector(wrapper):
        makers = [lambda: wrapper(Spaces(copy.deepcopy(space)))] * 2
        return SyncVectorEnv(makers, autoreset_mode=mode)

    outside = ReturnAware(vector(lambda env: env), 0.9)
    inside = vector(lambda env: ReturnAware(env, 0.9))
    assert outside.single_observation_space == inside.single_observation_space
    np.testing.assert_array_equal(outside.reset(seed=5)[0], inside.reset(seed=5)[0])
    for _ in range(5):
        ours, theirs = outside.step(np.zeros(2, int)), inside.step(np.zeros(2, int))
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[0] in outside.observation_space
        if "final_obs" in theirs[-1]:
            final = zip(ours[-1]["final_obs"], theirs[-1]["final_obs"], strict=True)
            for last, expected in final:
                np.testing.assert_array_equal(last, expected)


def test_the_bounds_of_the_result_are_those_inside_followed_by_the_memorys():
    largest = np.finfo(np.float32).max
    box: Any = ReturnAware(Spaces(spaces.Box(-2.0, 3.0, (1,))), 0.9).observation_space
    np.testing.assert_array_equal(box.low, np.array([-2.0, -largest, 0.0], np.float32))
    np.testing.assert_array_equal(box.high, np.array([3.0, largest, 1.0], np.float32))


def test_a_memory_beyond_float32_stays_at_the_largest_number():
    env = TargetAware(Spaces(spaces.Discrete(2)), 1e-20, 1.0)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    observation = env.step(0)[0]
    assert observation in env.observation_space


def test_infos_of_the_environment_inside_are_left_as_they_are():
    inside = GymnasiumVectorEnv(Scripted(), 1, autoreset_mode="SameStep")
    kept = {}

    class Keeps(gym.vector.VectorWrapper):
        def step(self, actions):
            *rest, kept["infos"] = self.env.step(actions)
            return *rest, kept["infos"]

    envs = ReturnAware(Keeps(inside), 0.5)
    envs.reset(seed=0)
    infos = envs.step(np.array([TERMINATE]))[-1]
    assert kept["infos"]["final_obs"][0].shape == (1,)
    assert infos["final_obs"][0].shape == (3,)


def test_the_mask_of_a_partial_reset_stays_in_the_callers_options():
    envs = ReturnAware(SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * 2), 0.5)
    envs.reset(seed=0)
    options = {"reset_mask": np.array([True, False])}
    envs.reset(options=options)
    np.testing.assert_array_equal(options["reset_mask"], [True, False])


def test_gymnasiums_statistics_work_outside_and_inside():
    base = SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * 2)
    statistics = gym.wrappers.vector.RecordEpisodeStatistics
    envs = statistics(ReturnAware(statistics(base, stats_key="inner"), 0.5))
    envs.reset(seed=0)
    infos = envs.step(np.array([GO_ON, TERMINATE]))[-1]
    np.testing.assert_array_equal(infos["episode"]["r"], infos["inner"]["r"])


@pytest.mark.parametrize("vector", [False, True])
def test_another_target_holds_from_the_next_episode_on(vector):
    inside = GymnasiumVectorEnv(Scripted(), 1) if vector else GymnasiumEnv(Scripted())
    env: Any = TargetAware(inside, 1.0, 5.0)
    action = np.array([GO_ON]) if vector else GO_ON
    assert np.ravel(env.reset(seed=0)[0])[-1] == 5.0
    env.set_target(9.0)
    assert np.ravel(env.step(action)[0])[-1] == 4.0
    assert np.ravel(env.reset()[0])[-1] == 9.0


def test_another_target_holds_in_those_copies_that_are_reset():
    envs: Any = TargetAware(GymnasiumVectorEnv(Scripted(), 2, autoreset_mode="SameStep"), 1.0, 5.0)
    envs.reset(seed=0)
    envs.set_target(9.0)
    # Rewards 1 and 11; the second copy starts anew, with the new target.
    observations, _, _, _, infos = envs.step(np.array([GO_ON, TERMINATE]))
    assert observations[:, -1].tolist() == [4.0, 9.0]
    assert infos["final_obs"][1][-1] == -6.0
    # Rewards 2 and 1.
    assert envs.step(np.array([GO_ON, GO_ON]))[0][:, -1].tolist() == [2.0, 8.0]


def test_one_name_serves_all_three_kinds_of_environment():
    core, single, vector = Scripted(), GymnasiumEnv(Scripted()), GymnasiumVectorEnv(Scripted(), 2)
    assert type(ReturnAware(core, 0.5)) is JaxMemoryAware
    assert type(ReturnAware(single, 0.5)) is ReturnAware
    assert type(ReturnAware(vector, 0.5)) is VectorReturnAware
    assert type(TargetAware(core, 0.5, 1.0)) is JaxMemoryAware
    assert type(TargetAware(single, 0.5, 1.0)) is TargetAware
    assert type(TargetAware(vector, 0.5, b=1.0)) is VectorTargetAware
    assert type(MemoryAware(core, NoMemoryInput(), 0.5)) is JaxMemoryAware
    assert type(MemoryAware(single, NoMemoryInput(), 0.5)) is MemoryAware
    assert type(MemoryAware(vector, NoMemoryInput(), 0.5)) is VectorMemoryAware


def test_a_wrapped_environment_can_be_made_again_from_its_spec_and_copied():
    env = TargetAware(gym.make("downside/CliffWalk-v0"), 0.5, b=2.0, reward_scale=0.1)
    assert env.spec is not None
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    np.testing.assert_array_equal(again.reset(seed=0)[0], env.reset(seed=0)[0])
    np.testing.assert_array_equal(copy.deepcopy(env).step(0)[0], env.step(0)[0])
    assert env.get_wrapper_attr("reward_scale") == 0.1


@pytest.mark.parametrize("gamma", [0.0, 1.01, -0.5, float("nan")])
@pytest.mark.parametrize("inside", [Scripted(), GymnasiumEnv(Scripted())])
def test_a_discount_outside_its_range_is_refused(gamma, inside):
    with pytest.raises(ValueError, match=r"`gamma` must be in \(0, 1\], got"):
        ReturnAware(inside, gamma)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf")])
def test_a_reward_scale_outside_its_range_is_refused(scale):
    with pytest.raises(ValueError, match=r"`reward_scale` must be a finite number in \(0, inf\)"):
        ReturnAware(GymnasiumEnv(Scripted()), 0.9, reward_scale=scale)


@pytest.mark.parametrize("inside", [Scripted(), GymnasiumEnv(Scripted())])
def test_a_target_that_is_not_a_number_is_refused(inside):
    with pytest.raises(ValueError, match="`b` must be a finite number, got nan"):
        TargetAware(inside, 0.9, float("nan"))


def test_observations_without_a_fixed_size_are_refused():
    with pytest.raises(ValueError, match="`env` must have observations of a fixed size"):
        ReturnAware(Spaces(spaces.Sequence(spaces.Discrete(2))), 0.9)


def test_a_vector_environment_that_hides_its_autoreset_mode_is_refused():
    envs = GymnasiumVectorEnv(Scripted(), 2)
    envs.metadata = {}
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\].* got None"):
        ReturnAware(envs, 0.9)


def test_final_observations_that_got_lost_are_missed():
    class Forgets(gym.vector.VectorWrapper):
        def step(self, actions):
            return *self.env.step(actions)[:-1], {}

    inside = GymnasiumVectorEnv(Scripted(), 1, autoreset_mode="SameStep")
    envs = ReturnAware(Forgets(inside), 0.9)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="must have the key 'final_obs'"):
        envs.step(np.array([TERMINATE]))


def test_the_target_of_a_jax_environment_can_be_traced():
    # One compiled program for all targets: b is data, not part of the program.
    def start(b):
        env: Any = TargetAware(MeanReversion(), 0.9, b)
        return env.reset(jax.random.key(0))[1][-1]

    np.testing.assert_array_equal(jax.vmap(start)(np.array([1.0, 2.0])), [1.0, 2.0])


def test_another_target_of_a_jax_environment_compiles_nothing_anew():
    traces = 0

    @eqx.filter_jit
    def start(env):
        nonlocal traces
        traces += 1
        return env.reset(jax.random.key(0))[1][-1]

    shown = [float(start(TargetAware(MeanReversion(), 0.9, b))) for b in (1.0, 2.0)]
    assert (shown, traces) == ([1.0, 2.0], 1)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    # Rewards 1 and 2 with γ = 0.5: s = 2 and c = 0.25; b = (7 - 2) / 0.25.
    [(NoMemoryInput(), [2]), (ReturnInput(), [2, 2, 0.25]), (TargetInput(7.0), [2, 20])],
)
def test_the_generic_wrapper_shows_what_it_is_told_to(inputs, expected):
    single: Any = MemoryAware(GymnasiumEnv(Scripted()), inputs, 0.5)
    single.reset(seed=0)
    single.step(GO_ON)
    np.testing.assert_array_equal(single.step(GO_ON)[0], expected)
    vector: Any = MemoryAware(GymnasiumVectorEnv(Scripted(), 2), inputs, 0.5)
    vector.reset(seed=0)
    vector.step(np.array([GO_ON, TERMINATE]))
    # The second copy is reset by its second step: the memory of a new episode.
    first = [0, *np.ravel(inputs.show(Memory(0.0, 1.0)))]
    np.testing.assert_array_equal(vector.step(np.array([GO_ON, GO_ON]))[0], [expected, first])
    core: Any = MemoryAware(Scripted(), inputs, 0.5)
    state = core.initial_state(jax.random.key(0))
    for _ in range(2):
        state = core.transition(state, GO_ON, jnp.zeros(())).state
    np.testing.assert_array_equal(core.observe(state), expected)
    for env in (single, vector):
        assert env.observation_space.shape[-1] == len(expected)
    assert core.observation_space.shape == (len(expected),)


def test_the_mask_of_legal_actions_passes_through_in_jax():
    core = ReturnAware(MeanReversion(inventory_limit=1.0), 0.9)
    state, _ = core.reset(jax.random.key(0))
    assert core.action_mask(state).sum() == 11


def test_a_long_walk_discounts_towards_zero():
    env = ReturnAware(GymnasiumEnv(CliffWalk(slip=0.0, horizon=None)), 0.5)
    env.reset(seed=0)
    for _ in range(59):
        env.step(0)
    observation = env.step(0)[0]
    # Sum of -0.5^t is -2; c = 0.5^60.
    np.testing.assert_allclose(observation[-2:], [-2.0, 0.5**60], rtol=1e-6)
