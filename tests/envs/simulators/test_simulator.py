"""A user's NumPy simulator as an environment: the same numbers as in JAX, and clear errors."""

import dataclasses
import math

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import downside as ds
from downside.envs import GymnasiumEnv, MeanReversion, SimulatorVectorEnv, make_jax
from downside.envs.env_spec import EnvSpec
from downside.envs.faults import named_faults, ready
from downside.envs.rollout import random_episodes
from downside.envs.simulators import callback


class Reversion:
    """`MeanReversion` of ours as a user would write it in NumPy."""

    horizon, gamma, noise = 10, 0.99, "normal"
    observation_names = ("price", "inventory", "time")

    def __init__(self, sigma=1.0, continuous=False):
        self.sigma, self.continuous = sigma, continuous
        self.actions = gym.spaces.Box(-2.0, 2.0, ()) if continuous else np.linspace(-2, 2, 21)

    def initial_state(self, rng, count):
        zeros = np.zeros(count)
        return {"price": zeros + 1.0, "inventory": zeros, "time": np.zeros(count, int)}

    def step(self, state, action, noise):
        decay = math.exp(-0.2)
        spread = self.sigma * math.sqrt((1 - decay**2) / 4.0)
        price = 1.0 + (state["price"] - 1.0) * decay + spread * noise
        inventory, time = state["inventory"] + action, state["time"] + 1
        over = time == self.horizon
        reward = -action * state["price"] - 0.005 * action**2
        reward = reward + np.where(over, inventory * price - 0.5 * inventory**2, 0.0)
        return {"price": price, "inventory": inventory, "time": time}, reward, over

    def observe(self, state):
        return state["price"], state["inventory"], state["time"] / self.horizon


@dataclasses.dataclass
class Walkers:
    place: np.ndarray
    time: np.ndarray


class Walk:
    """Two walkers, a state of a user's own class, noise that the user draws, masks."""

    horizon, actions = 4, 3
    action_names = ("left", "stay", "right")

    def initial_state(self, rng, count):
        return Walkers(rng.normal(size=(count, 2)), np.zeros(count, int))

    def sample_noise(self, rng, count):
        return {"jump": rng.exponential(size=count), "walk": rng.normal(size=(count, 2))}

    def step(self, state, action, noise):
        place = state.place + (action - 1.0)[:, None] + noise["walk"]
        time = state.time + 1
        if (state.time >= self.horizon).any():
            raise RuntimeError("asked beyond the end")
        far = np.abs(place).max(axis=1) > 4.0
        return Walkers(place, time), place[:, 0] - noise["jump"], far | (time == self.horizon)

    def action_mask(self, state):
        mask = np.ones((len(state.time), 3), bool)
        mask[:, 0] = state.place[:, 0] > 0.0
        return mask


def key(seed=0):
    return jax.random.key(seed)


# --- the same numbers ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
def test_a_numpy_simulator_pays_what_the_same_problem_in_jax_pays(in_place, monkeypatch):
    if not in_place:  # as on an accelerator, by jax.pure_callback
        monkeypatch.setattr(callback, "buffer_callback", None)
    returns = [
        random_episodes(env, key(), gamma=0.99, horizon=10, episodes=50).memory.accumulated
        for env in (ds.Simulator(Reversion()), MeanReversion())
    ]
    np.testing.assert_allclose(returns[0], returns[1], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_finite_differences_are_the_derivatives_of_the_same_problem_in_jax():
    def slopes(env):
        def total(actions):
            state, reward = env.initial_state(key()), 0.0
            for time in range(3):
                noise = env.sample_noise(key(time))
                scaled = actions[time] * (1.0 + env.observe(state)[:2].sum())
                step = env.transition(state, scaled[None], noise)
                state, reward = step.state, reward + step.reward
            return reward

        return jax.grad(total)(jnp.array([0.3, -0.2, 0.1]))

    numpy, relaxed = ds.Simulator(Reversion()).relaxed, MeanReversion().relaxed
    assert numpy is not None
    assert relaxed is not None
    np.testing.assert_allclose(numpy[1], relaxed[1], atol=1e-6)
    np.testing.assert_allclose(slopes(numpy[0]), slopes(relaxed[0]), rtol=1e-3)


def test_at_the_upper_bound_differences_look_inside_of_the_box():
    class Clipped(Reversion):
        def step(self, state, action, noise):
            assert (np.abs(action) <= 2.0).all()
            return super().step(state, action, noise)

    env = ds.Simulator(Clipped(continuous=True))
    state, noise = env.initial_state(key()), env.sample_noise(key())
    slope = jax.grad(lambda a: env.transition(state, a, noise).reward)(jnp.array([2.0]))
    np.testing.assert_allclose(slope, [-1.0 - 0.01 * 2.0], rtol=1e-4)  # -price - 2 cost a


def test_points_of_a_grid_are_compared_with_their_neighbours():
    class Orders:  # 3 for each of up to four ordered, less a fixed cost of 2
        actions = np.arange(5.0)
        horizon = 1

        def initial_state(self, rng, count):
            return np.zeros((count, 1))

        def step(self, state, action, noise):
            reward = 3.0 * action - 2.0 * (action > 0)
            return state + action[:, None], reward, np.ones(len(action), bool)

        def observe(self, state):
            return state

    relaxed = ds.Simulator(Orders()).relaxed
    assert relaxed is not None
    env, _ = relaxed
    state = env.initial_state(key())
    slope = jax.grad(lambda a: env.transition(state, a, env.sample_noise(key())).reward)
    slopes = [float(slope(jnp.array([x]))[0]) for x in (0.0, 1.0, 2.0, 4.0)]
    # 1 - 0; half of 4 - 0; half of 7 - 1; 10 - 7.
    np.testing.assert_allclose(slopes, [1.0, 2.0, 3.0, 3.0], rtol=1e-5)


def test_states_of_a_class_noise_that_is_drawn_and_masks():
    env = ds.Simulator(Walk)
    keys = jax.random.split(key(), 5)
    states = jax.vmap(env.initial_state)(keys)
    assert states.values["place"].shape == (5, 2)
    masks = np.asarray(jax.vmap(env.action_mask)(states))
    np.testing.assert_array_equal(masks[:, 0], np.asarray(states.values["place"][:, 0]) > 0)
    assert env.sample_noises(key(), 4)["walk"].shape == (4, 2)
    step = eqx.filter_jit(jax.vmap(env.step))(keys, states, jnp.array([1, 1, 2, 2, 1]))
    assert step.observation.shape == (5, 3)
    assert set(np.asarray(step.state.values["time"])) == {1}


@pytest.mark.slow
def test_what_follows_the_end_of_an_episode_is_not_asked_for():
    # `Walk` raises if it is stepped beyond its end, which `rollout` does with episodes that ended.
    env = ds.Simulator(Walk())
    played = random_episodes(env, key(), gamma=1.0, horizon=4, episodes=64)
    assert np.isfinite(played.memory.accumulated).all()
    assert 64 < played.steps < 256


def test_noise_depends_on_the_keys_of_its_own_batch_alone():
    env = ds.Simulator(Walk())
    keys = jax.random.split(key(), 6).reshape(2, 3)
    together = jax.jit(jax.vmap(jax.vmap(env.sample_noise)))(keys)
    for i in range(2):
        alone = jax.vmap(env.sample_noise)(keys[i])
        np.testing.assert_array_equal(together["walk"][i], alone["walk"])
    same = jax.vmap(jax.vmap(env.sample_noise))(jnp.stack([keys[0], keys[0]]))["jump"]
    np.testing.assert_array_equal(same[0], same[1])


@pytest.mark.slow
def test_declared_noise_has_its_distribution_and_mirrors():
    class Both(Reversion):
        noise = {"up": "uniform", "z": ("normal", 2)}  # noqa: RUF012

        def step(self, state, action, noise):
            return super().step(state, action, noise["z"][:, 0] + noise["up"])

    env = ds.Simulator(Both())
    noise = env.sample_noises(key(), 1000)
    assert noise["z"].shape == (1000, 2)
    assert abs(float(noise["up"].mean()) - 0.5) < 1e-3
    assert np.abs(np.asarray(noise["z"].mean(axis=0))).max() < 1e-3
    mirrored = env.mirrored(noise)
    np.testing.assert_allclose(mirrored["up"], 1.0 - noise["up"])
    np.testing.assert_allclose(mirrored["z"], -noise["z"])


def test_mirrored_noise_of_a_user_comes_in_pairs():
    class Mirrored(Walk):
        def sample_noise(self, rng, count):
            return {"jump": rng.random(count), "walk": rng.normal(size=(count, 2))}

        def mirrored(self, noise):
            return {"jump": 1.0 - noise["jump"], "walk": -noise["walk"]}

    env = ds.Simulator(Mirrored())
    noise = jax.vmap(lambda k: env.sample_noises(k, 5))(jax.random.split(key(), 3))
    np.testing.assert_allclose(noise["walk"][:, 3:], -noise["walk"][:, :2], rtol=1e-6)
    np.testing.assert_allclose(noise["jump"][:, 3:], 1.0 - noise["jump"][:, :2], rtol=1e-6)


def test_large_batches_and_one_compiled_loop():
    env = ds.Simulator(Reversion())

    @jax.jit
    def play(keys):
        states = jax.vmap(env.initial_state)(keys)

        def step(states, time):
            del time
            actions = jnp.zeros(keys.shape[0], jnp.int32)
            return jax.vmap(env.step)(keys, states, actions).state, None

        return jax.lax.scan(step, states, jnp.arange(10))[0]

    over = play(jax.random.split(key(), 200_000)).over
    assert over.all()


# --- the Gymnasium faces ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("simulator", [Reversion(), Reversion(continuous=True), Walk()])
def test_check_env_accepts_simulators(simulator):
    ds.check_env(ds.Simulator(simulator))


def test_a_simulator_is_a_gymnasium_environment():
    env = GymnasiumEnv(ds.Simulator(Walk()))
    env.reset(seed=0)
    lengths = 0
    for _ in range(8):
        *_, terminated, truncated, info = env.step(1)
        lengths += 1
        assert info["action_mask"].shape == (3,)
        if terminated or truncated:
            break
    assert lengths <= 4


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_vector_environment_ends_episodes_as_gymnasium_defines_it(mode):
    env = ds.Simulator(Reversion()).vector_env(3, autoreset_mode=mode)
    observations, infos = env.reset(seed=1)
    assert observations.shape == (3, 3)
    assert infos["action_mask"].shape == (3, 21)
    rewards, terminated = np.ones(3), np.zeros(3, bool)
    for _ in range(10):
        observations, rewards, terminated, _, infos = env.step(np.array([10, 11, 12]))
    assert terminated.all()
    np.testing.assert_array_equal(rewards[0] == 0.0, True)  # nothing traded, nothing held
    if mode is AutoresetMode.SAME_STEP:
        np.testing.assert_allclose(observations[:, 2], 0.0)
        assert infos["final_obs"][1][2] == 1.0
        return
    np.testing.assert_allclose(observations[:, 2], 1.0)
    if mode is AutoresetMode.NEXT_STEP:
        observations, rewards, terminated, _, _ = env.step(np.array([0, 0, 0]))
        assert not terminated.any()
        np.testing.assert_allclose(rewards, 0.0)
    else:
        with pytest.raises(gym.error.ResetNeeded, match="reset_mask"):
            env.step(np.array([0, 0, 0]))
        observations, _ = env.reset(options={"reset_mask": np.array([True, True, True])})
    np.testing.assert_allclose(observations, np.array([[1.0, 0.0, 0.0]] * 3))


def test_the_vector_environment_repeats_itself_with_a_seed_and_takes_continuous_actions():
    env = ds.Simulator(Reversion(continuous=True)).vector_env(4)
    runs = []
    for _ in range(2):
        env.reset(seed=5)
        runs.append([env.step(np.full((4, 1), 0.5, np.float32))[0] for _ in range(5)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert isinstance(env, SimulatorVectorEnv)
    assert make_jax(env) is env.core


def test_episodes_that_are_truncated_are_not_bounded():
    class Truncated(Walk):
        def step(self, state, action, noise):  # pyright: ignore[reportIncompatibleMethodOverride]
            after, reward, over = super().step(state, action, noise)
            ended = after.time == self.horizon
            return after, reward, over & ~ended, ended

    env = ds.Simulator(Truncated())
    assert not env.bounded
    assert ds.Simulator(Walk()).bounded
    played = [env.reset(key(seed))[0] for seed in range(2)]
    step = env.step(key(), played[0], 1)
    assert not step.truncated


# --- where it comes from ------------------------------------------------------------------------


def test_a_simulator_is_made_again_by_module_and_class():
    spec = EnvSpec.of(ds.Simulator(Reversion, sigma=0.5))
    assert spec.id == f"{__name__}:Reversion"
    assert spec.parameters == {"sigma": 0.5, "continuous": False}
    made = make_jax(spec.id, **spec.parameters)
    assert isinstance(made, ds.Simulator)
    assert made.simulator.sigma == 0.5


def test_a_simulator_with_arguments_that_it_does_not_keep_must_be_handed_over():
    class Forgetful(Reversion):
        def __init__(self, volatility=1.0):
            super().__init__(volatility)

    spec = EnvSpec.of(ds.Simulator(Forgetful()))
    assert spec.id is None
    assert spec.digest != EnvSpec.of(ds.Simulator(Forgetful(2.0))).digest


def test_a_simulator_that_is_not_wrapped_is_named():
    with pytest.raises(TypeError, match=r"ds\.Simulator\(Walk"):
        make_jax(Walk())


# --- what users get wrong -----------------------------------------------------------------------


def broken(**changes):
    return type("Broken", (Reversion,), changes)()


def own_generator(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward + self.rng.normal(size=len(reward)), over


def counts_steps(self, state, action, noise):
    self.time = getattr(self, "time", 0) + 1
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward + self.time, over


def changes_its_arguments(self, state, action, noise):
    state["price"] += 1.0
    return Reversion.step(self, state, action, noise)


def mixes_rows(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward - state["price"].mean() * action.mean(), over


def only_some(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward[:1], over


def nothing_more(self, state, action, noise):
    return Reversion.step(self, state, action, noise)[:2]


def divides(self, state, action, noise):
    raise ZeroDivisionError("by nothing")


def never_ends(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward, over & False


def numbers_for_flags(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, reward, over.astype(float)


def not_a_number(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return after, np.where(over, np.nan, reward), over


def large_numbers(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return {**after, "time": after["time"] + 2**32}, reward, over


def other_keys(self, state, action, noise):
    after, reward, over = Reversion.step(self, state, action, noise)
    return {"price": after["price"]}, reward, over


WRONG = [
    ({"rng": np.random.default_rng(0), "step": own_generator}, "function of state, action and"),
    ({"step": counts_steps}, "called twice with the same arguments"),
    ({"step": changes_its_arguments}, "must not change its arguments"),
    ({"step": mixes_rows}, "must treat every row by itself"),
    ({"step": only_some}, r"must give `reward` of shape \(7,\)"),
    ({"step": nothing_more}, "must give a tuple"),
    ({"step": divides}, r"raised ZeroDivisionError: by nothing in .*test_simulator\.py, line \d+"),
    ({"step": never_ends}, "must end within its `horizon` of 10"),
    ({"step": numbers_for_flags}, "`terminated` as booleans"),
    ({"step": not_a_number}, "finite rewards"),
    ({"step": other_keys}, "what the first one was built of"),
    ({"step": large_numbers}, "must fit into 32 bits"),
    (
        {
            "observation_names": None,
            "observe": lambda self, state: np.where(state["time"] == 10, np.inf, 0.0),
        },
        "also after the last step",
    ),
    ({"horizon": 2.5}, "`horizon` of Broken must be a whole number"),
    ({"noise": "gauss"}, "define `sample_noise"),
    ({"sample_noise": lambda self, rng, count: rng.random(count)}, "both `noise` and"),
    ({"observation_names": ("price",)}, "must be 3 names"),
    (
        {"noise": None, "sample_noise": lambda self, rng, count: np.random.random(count)},  # noqa: NPY002
        "must draw from the `rng`",
    ),
    ({"initial_state": lambda self, rng, count: {"time": 0}}, "a row for each copy"),
    (
        {
            "observation_names": None,
            "observe": lambda self, state: state["price"] - state["price"].max(),
        },
        "`observe` of Broken",
    ),
    (
        {"action_mask": lambda self, state: np.zeros((len(state["time"]), 21), bool)},
        "at least one action",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_simulator_that_breaks_a_rule_is_told_which(changes, message):
    with pytest.raises((ds.SimulatorError, ValueError, TypeError), match=message):
        ds.Simulator(broken(**changes))


def test_a_simulator_is_not_blamed_for_actions_that_are_no_numbers():
    env = ds.Simulator(Reversion(continuous=True))
    state, noise = env.initial_state(key()), env.sample_noise(key())
    with pytest.raises(ds.SimulatorError, match="training has diverged"), named_faults():
        ready(env.transition(state, jnp.array([jnp.nan]), noise))


def test_a_generator_of_its_own_is_named():
    simulator = broken(step=own_generator)
    vars(simulator)["rng"] = np.random.default_rng(0)
    with pytest.raises(ds.SimulatorError, match=r"`sample_noise\(self, rng, count\)`.*`self\.rng`"):
        ds.Simulator(simulator)


@pytest.mark.parametrize("actions", [0, 2.5, [1.0], "many", gym.spaces.Box(-np.inf, 1.0)])
def test_wrong_actions_are_refused(actions):
    simulator = Reversion()
    simulator.actions = actions
    with pytest.raises(ValueError, match="`actions` of Reversion must be"):
        ds.Simulator(simulator)


def test_a_class_that_lacks_a_method_is_told_so():
    class Almost:
        horizon, actions = 1, 2

        def inital_state(self, rng, count):
            return np.zeros(count)

        def step(self, state, action, noise):
            return state, state, state == 0

    with pytest.raises(TypeError, match=r"`initial_state`\. Did you mean 'inital_state'"):
        ds.Simulator(Almost())


class Late(Reversion):
    """Fails in the middle of an episode, but only once it is told to."""

    def __init__(self):
        super().__init__()
        self.fails = False

    def step(self, state, action, noise):
        if self.fails and (state["time"] == 5).any():
            raise ValueError("the market is closed")
        return super().step(state, action, noise)


@pytest.mark.parametrize("single", [True, False])
def test_an_error_in_a_face_names_the_line(single):
    simulator = Late()
    core = ds.Simulator(simulator)
    env = GymnasiumEnv(core) if single else core.vector_env(2)
    env.reset(seed=0)
    action = 10 if single else np.array([10, 10])
    for _ in range(5):
        env.step(action)
    simulator.fails = True
    with pytest.raises(ds.SimulatorError, match=r"market is closed in .*test_simulator\.py, line"):
        env.step(action)
