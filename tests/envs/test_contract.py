"""What every registered environment must satisfy."""

import inspect
import warnings
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import downside as ds
from downside._registration import LANDER_IDS
from downside.envs import (
    AmericanPut,
    CliffWalk,
    GymnasiumEnv,
    Hedging,
    MeanReversion,
    Portfolio,
    ReturnAware,
    Tabular,
    TargetAware,
    registered,
)
from downside.envs.problems.lunar_lander import LANDERS

IDS = [entry.id for entry in registered()]
JAX_ENTRIES: list[Any] = [entry for entry in registered() if entry.problem is not None]
TABULAR = Tabular(
    [[[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], [[0.6, 0.0, 0.4], [0.5, 0.5, 0.0]], [[0.0] * 3] * 2],
    [[1.0, -2.0], [0.5, 3.0], [0.0, 0.0]],
    [False, False, True],
    [0.75, 0.25, 0.0],
    horizon=6,
)
WRAPPED = "different from the unwrapped version"
UNIT = ".*symmetric and normalized space"  # positions and amounts keep their unit

every_id = pytest.mark.parametrize("env_id", IDS)
# The gamble of the risky lander comes at the end: until then all episodes are the same.
random_from_the_start = pytest.mark.parametrize(
    "env_id", [env_id for env_id in IDS if "Risky" not in env_id]
)


def wrapped(core):
    """An environment and its wrappers; these are slow, but for the table."""
    marks = () if core is TABULAR else (pytest.mark.slow,)
    return [
        core,
        pytest.param(ReturnAware(core, 0.9), marks=marks),
        pytest.param(TargetAware(core, 0.9, 1.5), marks=marks),
    ]


every_core = pytest.mark.parametrize(
    "core",
    [
        variant
        for core in [*(entry.problem() for entry in JAX_ENTRIES), TABULAR]
        for variant in wrapped(core)
    ],
    ids=lambda core: type(getattr(core, "env", core)).__name__ + type(core).__name__,
)


def first_action(space):
    """Action 0 does not end any of them early; of a box, the upper corner."""
    return 0 if isinstance(space, gym.spaces.Discrete) else np.array(space.high)


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.slow
@pytest.mark.filterwarnings(f"ignore:{UNIT}")
@every_id
def test_gymnasiums_checker_has_no_complaint(env_id):
    check_env(gym.make(env_id).unwrapped)


@pytest.mark.slow
def test_gymnasiums_checker_has_no_complaint_about_a_table():
    check_env(GymnasiumEnv(TABULAR), skip_render_check=True)


@random_from_the_start
@pytest.mark.parametrize(
    "wrap", [lambda env: ReturnAware(env, 0.9), lambda env: TargetAware(env, 0.9, 1.0)]
)
def test_gymnasiums_checker_has_no_complaint_about_the_wrapped_environment(env_id, wrap):
    with warnings.catch_warnings():
        # The only things it may say: there is a wrapper, and the unit.
        warnings.filterwarnings("ignore", message=f".*{WRAPPED}.*")
        warnings.filterwarnings("ignore", message=UNIT)
        check_env(wrap(gym.make(env_id)), skip_render_check=True)


@every_id
def test_an_episode_stays_inside_the_observation_space(env_id):
    env = gym.make(env_id)
    env.action_space.seed(0)
    observation, info = env.reset(seed=0)
    for _ in range(300):
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        mask = info.get("action_mask")
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample(mask))
        assert isinstance(reward, int | float)
        if terminated or truncated:
            observation, info = env.reset()
    env.close()


@random_from_the_start
def test_equal_seeds_give_equal_episodes_and_other_seeds_give_others(env_id):
    def episode(seed):
        env = gym.make(env_id)
        env.action_space.seed(1)
        observations = [env.reset(seed=seed)[0]]
        # Action 0 ends none of them early, but leaves nothing to chance where it bets nothing.
        idle = {"GamblersRuin": 1, "RiverSwim": 1, "Inventory": 1, "BettingGame": 4}
        name = env_id.removeprefix("downside/").removesuffix("-v0")
        action = idle.get(name, first_action(env.action_space))
        for _ in range(3):
            observation, _, terminated, _, _ = env.step(action)
            observations.append(observation)
            if terminated:
                break
        env.close()
        return np.concatenate(observations)

    np.testing.assert_array_equal(episode(3), episode(3))
    # A grid has few places to be, so one of ten seeds must differ.
    assert any(not np.array_equal(episode(3), episode(seed)) for seed in range(4, 100))


@pytest.mark.parametrize("entry", registered(), ids=lambda entry: entry.id)
def test_the_docstring_has_gymnasiums_sections_and_names_every_parameter(entry):
    documented: Any = entry.problem or LANDERS[LANDER_IDS[entry.id]].make
    text = inspect.getdoc(documented) or ""
    sections = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert sections == [
        "Description",
        "Action Space",
        "Observation Space",
        "Rewards",
        "Starting State",
        "Episode End",
        "Arguments",
    ]
    source = inspect.getsource(documented)
    for name in entry.parameters:
        assert f"`{name}`" in source or f"{name}: " in source
    assert entry.description == text.splitlines()[0]


@pytest.mark.parametrize("entry", registered(), ids=lambda entry: entry.id)
def test_the_listed_spaces_are_those_of_the_environment(entry):
    env = gym.make(entry.id)
    assert entry.spaces() == (env.observation_space, env.action_space)
    env.close()


@pytest.mark.parametrize("entry", registered(), ids=lambda entry: entry.id)
def test_every_parameter_can_be_set_through_gym_make(entry):
    env = gym.make(entry.id, **entry.parameters)
    env.reset(seed=0)
    env.close()


@pytest.mark.parametrize("entry", registered(), ids=lambda entry: entry.id)
def test_an_unknown_parameter_is_met_with_the_closest_known_one(entry):
    name = next(iter(entry.parameters))
    wrong: Any = {f"{name}x": 1.0}
    with pytest.raises(TypeError, match=rf"no parameter `{name}x`. Did you mean '{name}'\?"):
        gym.make(entry.id, **wrong)


@pytest.mark.slow
@pytest.mark.parametrize("entry", JAX_ENTRIES, ids=lambda entry: entry.id)
def test_the_native_vector_environment_steps_a_thousand_copies(entry):
    envs = gym.make_vec(entry.id, num_envs=1000, vectorization_mode="vector_entry_point")
    envs.action_space.seed(0)
    observations, infos = envs.reset(seed=0)
    assert observations in envs.observation_space
    for _ in range(3):
        observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert observations in envs.observation_space
        assert rewards.shape == terminated.shape == truncated.shape == (1000,)
        if entry.problem().num_actions:
            assert infos["action_mask"].shape == (1000, entry.problem().num_actions)
        else:
            assert "action_mask" not in infos
    # The copies have random numbers of their own.
    assert len(np.unique(observations, axis=0)) > 1


@every_core
def test_the_core_resets_and_steps_under_jit_and_vmap(core):
    keys = jax.random.split(jax.random.key(0), 5)
    states, observations = jax.jit(jax.vmap(core.reset))(keys)
    actions = jnp.stack([jnp.asarray(first_action(core.action_space))] * 5)
    step = jax.jit(jax.vmap(core.step))(keys, states, actions)
    space = core.observation_space
    assert observations.shape == step.observation.shape == (5, *space.shape)
    assert observations.dtype == step.observation.dtype == jnp.float32
    assert step.terminated.dtype == step.truncated.dtype == bool
    assert jax.tree.structure(step.state) == jax.tree.structure(states)
    for before, after in zip(jax.tree.leaves(states), jax.tree.leaves(step.state), strict=True):
        assert before.dtype == after.dtype  # or a loop over steps would not compile
    masks = jax.vmap(core.action_mask)(states)
    assert masks.shape == (5, core.num_actions)
    assert masks.dtype == bool
    assert np.asarray(observations[0]) in space
    assert np.asarray(step.observation[0]) in space


@every_core
def test_a_step_is_a_transition_under_sampled_noise(core):
    key = jax.random.key(7)
    state, _ = core.reset(key)
    action = first_action(core.action_space)
    step = core.step(key, state, action)
    after = core.transition(state, action, core.sample_noise(key))
    chosen = (step.state, step.reward, step.terminated, step.truncated)
    jax.tree.map(np.testing.assert_array_equal, chosen, tuple(after))
    np.testing.assert_array_equal(step.observation, core.observe(after.state))


@pytest.mark.slow
@every_core
def test_several_noises_are_stacked_like_one_under_jit_and_vmap(core):
    keys = jax.random.split(jax.random.key(2), 3)
    single_noise = core.sample_noise(keys[0])
    several = jax.jit(jax.vmap(lambda key: core.sample_noises(key, 5)))(keys)
    assert jax.tree.structure(several) == jax.tree.structure(single_noise)
    for leaf, single in zip(jax.tree.leaves(several), jax.tree.leaves(single_noise), strict=True):
        assert leaf.shape == (3, 5, *single.shape)
        assert leaf.dtype == single.dtype
    with pytest.raises(ValueError, match=r"`count` must be a whole number >= 1, got 0"):
        core.sample_noises(keys[0], 0)


@every_core
def test_no_episode_is_longer_than_the_horizon(core):
    def body(carry, key):
        state, running = carry
        step = core.step(key, state, first_action(core.action_space))
        over = step.terminated | step.truncated
        return (step.state, running & ~over), running

    def length(key):
        keys = jax.random.split(key, core.horizon + 5)
        _, running = jax.lax.scan(body, (core.initial_state(key), jnp.asarray(True)), keys)
        return running.sum()

    lengths = jax.jit(jax.vmap(length))(jax.random.split(jax.random.key(1), 20))
    assert lengths.max() <= core.horizon


@pytest.mark.slow
@every_core
def test_only_an_episode_of_an_unbounded_environment_is_cut_by_a_time_limit(core):
    def body(carry, key):
        state, running = carry
        step = core.step(key, state, first_action(core.action_space))
        cut = running & step.truncated
        return (step.state, running & ~step.terminated & ~step.truncated), cut

    def is_cut(key):
        keys = jax.random.split(key, core.horizon)
        start = (core.initial_state(key), jnp.asarray(True))
        (_, running), cut = jax.lax.scan(body, start, keys)
        return cut.any() | running

    cut = jax.jit(jax.vmap(is_cut))(jax.random.split(jax.random.key(1), 20))
    assert cut.any() == (not core.bounded)


@every_core
def test_equal_parameters_are_one_compiled_program(core):
    traces = 0

    @jax.jit
    def observe(core, state):
        nonlocal traces
        traces += 1
        return core.observe(state)

    for copy in (core, jax.tree.map(lambda leaf: leaf, core)):
        observe(copy, copy.initial_state(jax.random.key(0)))
    assert traces == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "core",
    [
        AmericanPut(),
        CliffWalk(),
        Portfolio(),
        TABULAR,
        MeanReversion(inventory_limit=3.0),
        MeanReversion(continuous=True, inventory_limit=3.0),
        Hedging(option="lookback", model="heston", swap=True, maturity=30 / 365),
        Hedging(option="put", num_positions=5, fixed_cost=0.01),
    ],
    ids=lambda core: type(core).__name__,
)
def test_our_checker_has_no_complaint(core):
    ds.check_env(core)
