"""The agents as a user meets them."""

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import Network
from downside.agents.networks import Ensemble, members
from downside.envs import GymnasiumFace, GymnasiumVectorFace, MeanReversion
from downside.train.origin import Origin
from downside.train.policy import GreedyPolicy
from downside.train.setup import check_timesteps

from ..reporting.stories import walk_mdp
from .tiny import CHUNK, COMMON, ENV, TINY, TWO

ID = "downside/MeanReversion-v0"


def make(seed=0, **changes):
    return ds.QRSRM(ENV, risk="cvar(0.5)", seed=seed, **{**TINY, **changes})


def run_of(agent):
    """Everything that changed while it learned."""
    assert agent._run is not None
    return agent._run


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


@pytest.fixture(scope="module")
def cvar_agent():
    return ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY).learn(TWO)


# --- learning ---------------------------------------------------------------------------------


def timeless(history):
    return [{k: v for k, v in one.items() if k not in ("seconds", "fps")} for one in history]


def test_the_same_seed_gives_the_same_agent_bit_for_bit(trained):
    again = make().learn(TWO)
    assert eqx.tree_equal(run_of(again), run_of(trained))
    assert timeless(again.history) == timeless(trained.history)


def test_another_seed_gives_another_agent(trained):
    other = make(seed=1).learn(TWO)
    assert not eqx.tree_equal(other.networks.critic, trained.networks.critic)
    assert not eqx.tree_equal(run_of(other).replay.storage, run_of(trained).replay.storage)


def test_the_history_has_the_value_of_every_iterate(trained):
    assert [one["timesteps"] for one in trained.history] == [CHUNK, TWO]
    assert [one["updates"] for one in trained.history] == [8, 16]
    for one in trained.history:
        assert all(np.isfinite(value) for value in one.values())
        assert one["best"] >= one["value"]
        assert one["spread"] > 0.0
    best = [one["best"] for one in trained.history]
    assert best == sorted(best)
    assert best[-1] == float(run_of(trained).kept.value)
    assert trained.num_timesteps == TWO


def test_a_callback_is_asked_after_each_outer_step_and_may_end_it():
    seen = []
    agent = make().learn(TWO, callback=lambda one: seen.append(one.num_timesteps))
    assert seen == [CHUNK, TWO]
    agent = make().learn(TWO, callback=lambda one: False)
    assert len(agent.history) == 1


def test_learning_again_goes_on(trained):
    agent = make().learn(TWO, callback=lambda one: False)
    first = agent.networks
    # One chunk was done, so a chunk more is two in all: the run that was never interrupted.
    agent.learn(CHUNK, reset_num_timesteps=False)
    assert [one["timesteps"] for one in agent.history] == [CHUNK, TWO]
    assert eqx.tree_equal(run_of(agent), run_of(trained))
    assert not eqx.tree_equal(first, run_of(agent).learner.networks)


def test_resuming_goes_on_to_the_end_that_was_planned(trained):
    agent = make().learn(TWO, callback=lambda one: False)
    assert agent.num_timesteps == CHUNK
    assert eqx.tree_equal(run_of(agent.resume()), run_of(trained))
    assert agent.num_timesteps == TWO


def test_learning_anew_counts_from_zero_and_keeps_what_was_learned():
    agent = make().learn(TWO)
    best, seen = agent.history[-1]["best"], int(run_of(agent).replay.added)
    agent.learn(CHUNK)
    assert [one["timesteps"] for one in agent.history] == [CHUNK]
    assert agent.history[-1]["best"] >= best
    assert int(run_of(agent).replay.added) == seen + CHUNK
    assert agent.history[-1]["exploration"] == make().learn(CHUNK).history[-1]["exploration"]


@pytest.mark.parametrize("wanted", [0, -5, np.nan, True, "many"])
def test_timesteps_must_be_a_positive_number(wanted):
    with pytest.raises(ValueError, match=r"`total_timesteps` must be a number >= 1, got"):
        check_timesteps(wanted, make().settings)


def test_without_a_number_of_steps_the_settings_say_it():
    assert check_timesteps(None, make(total_timesteps=TWO).settings) == TWO
    assert check_timesteps(1e3, make().settings) == 1000


def test_the_preset_of_the_paper_runs_with_a_network_of_ones_own():
    small = {name: TINY[name] for name in ("batch_size", "warmup_steps", "outer_episodes")}
    agent = ds.QRSRM(
        ENV,
        risk="0.5*mean + 0.5*cvar(0.5)",
        preset="paper",
        network=lambda key, size: eqx.nn.MLP(size, 8, 8, 1, key=key),
        quantiles=5,
        outer_interval=4,
        **small,
    )
    agent.learn(80)  # two chunks: 4 updates after 4 steps of 10 environments each
    assert [one["timesteps"] for one in agent.history] == [40, 80]
    assert agent.networks.critic is None
    assert isinstance(agent.networks.quantiles, Network)
    assert isinstance(agent.networks.quantiles.trunk, eqx.nn.MLP)
    assert agent.utility is not None
    assert all(np.isfinite(one["value"]) for one in agent.history)
    # The learned outer step has been made: one bend, and half of the weight is the mean's.
    h = run_of(agent).goal.absolute()
    np.testing.assert_allclose(h.drops, [1.0])
    np.testing.assert_allclose(h.linear, 0.5)


def test_qr_icvar_of_everything_is_qr_dqn_bit_for_bit():
    neutral = ds.QRDQN(ENV, **COMMON).learn(TWO)
    icvar = ds.QRiCVaR(ENV, risk="cvar(1.0)", **COMMON).learn(TWO)
    assert eqx.tree_equal(run_of(icvar).learner, run_of(neutral).learner)
    assert eqx.tree_equal(run_of(icvar).replay, run_of(neutral).replay)
    assert eqx.tree_equal(icvar.networks, neutral.networks)
    assert icvar.history[-1]["value"] == neutral.history[-1]["value"]
    assert icvar.wrap().observation_space == ENV.observation_space
    assert icvar.utility is None


# --- what it refuses --------------------------------------------------------------------------


@pytest.mark.long
def test_several_networks_see_the_same_and_differ(tmp_path):
    agent = ds.QRDQN(ENV, **COMMON, ensemble=2).learn(10 * CHUNK)
    assert isinstance(agent.networks.quantiles, Ensemble)
    one, other = members(agent.networks.quantiles)
    # The inputs were scaled anew on the way, for both of them alike.
    learner = run_of(agent).learner
    for networks in (learner.networks, learner.targets):
        first, second = (one.scale.input_spread for one in members(networks.quantiles))
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(one.head.weight, other.head.weight)
    loaded = ds.load(agent.save(tmp_path / "two"), ENV)
    np.testing.assert_array_equal(loaded.simulate_returns(5, 0), agent.simulate_returns(5, 0))


def test_an_agent_needs_an_environment():
    with pytest.raises(TypeError, match="An agent needs an environment, for example"):
        ds.QRSRM(risk="cvar(0.5)")
    with pytest.raises(TypeError, match="An agent needs an environment"):
        ds.QRSRM("MlpPolicy", risk="cvar(0.5)")
    with pytest.raises(TypeError, match=r"`policy` must be one of MlpPolicy.*got 'CnnPolicy'"):
        ds.QRSRM("CnnPolicy", ENV, risk="cvar(0.5)")


def test_a_risk_is_needed_except_for_the_mean():
    with pytest.raises(TypeError, match=r"QRSRM needs a `risk`, for example risk='cvar\(0\.2\)'"):
        ds.QRSRM(ID)
    assert str(ds.QRDQN(ID).risk) == "mean"


def test_a_truth_value_is_no_seed():
    with pytest.raises(TypeError, match="`seed` must be a whole number >= 0, got True"):
        ds.QRSRM(ID, risk="cvar(0.5)", seed=True)


def test_before_learning_there_is_nothing_to_ask():
    for ask in (
        lambda agent: agent.predict(np.zeros(5)),
        lambda agent: agent.return_distribution(np.zeros(5)),
        lambda agent: agent.simulate_returns(10, seed=0),
        lambda agent: agent.utility,
    ):
        with pytest.raises(RuntimeError, match="has not learned anything yet: call `learn` first"):
            ask(make())
    assert repr(make()) == "QRSRM(downside/MeanReversion-v0, risk='cvar(0.5)', untrained)"
    with pytest.raises(RuntimeError, match="has not learned anything yet"):
        ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY).wrap()


# --- what was learned -------------------------------------------------------------------------

OBSERVATIONS = np.array([[1.0, 0.0, 0.0, 0.0, 1.0], [0.4, 1.0, 1 / 3, -0.5, 0.99]])


def test_a_batch_is_predicted_as_one_by_one(trained):
    actions, state = trained.predict(OBSERVATIONS, state="mine")
    assert state == "mine"
    assert actions.shape == (2,)
    for observation, action in zip(OBSERVATIONS, actions, strict=True):
        single, _ = trained.predict(observation)
        assert (single, type(single)) == (action, int)
    scores = trained.scores(OBSERVATIONS)
    assert scores.shape == (2, 5)
    np.testing.assert_array_equal(actions, scores.argmax(axis=1))
    np.testing.assert_allclose(trained.scores(OBSERVATIONS[0]), scores[0], rtol=1e-4)


def test_masked_actions_are_not_predicted(trained):
    scores = trained.scores(OBSERVATIONS)
    for action in range(5):
        only = np.arange(5) == action
        assert trained.predict(OBSERVATIONS[0], action_masks=only)[0] == action
    without_best = np.ones((2, 5), np.int8)
    without_best[np.arange(2), scores.argmax(axis=1)] = 0
    second = np.argsort(scores, axis=1)[:, -2]
    np.testing.assert_array_equal(
        trained.predict(OBSERVATIONS, action_masks=without_best)[0], second
    )


def test_shapes_that_do_not_fit_are_refused(trained):
    with pytest.raises(ValueError, match=r"`observation` must have shape \(5,\) or \(n, 5\), got "):
        trained.predict(np.zeros(3))
    with pytest.raises(ValueError, match=r"`observation` must have shape"):
        trained.predict(np.zeros((2, 2, 5)))
    with pytest.raises(ValueError, match=r"`action_masks` must have shape \(1, 5\), got \(4,\)"):
        trained.predict(OBSERVATIONS[0], action_masks=np.ones(4))


def test_exploring_predictions_are_legal_and_differ_now_and_then(trained):
    many = np.repeat(OBSERVATIONS[:1], 400, axis=0)
    mask = np.array([1, 0, 1, 1, 0])
    actions, _ = trained.predict(many, deterministic=False, action_masks=mask)
    assert mask[actions].all()
    greedy = trained.predict(OBSERVATIONS[0], action_masks=mask)[0]
    # A tenth explores, a third of it finds the greedy action: 27 differ, standard deviation 5.
    assert 5 < (actions != greedy).sum() < 60


def test_the_return_distribution_is_sorted(trained):
    one = trained.return_distribution(OBSERVATIONS[0])
    both = trained.return_distribution(OBSERVATIONS)
    assert (one.shape, both.shape) == ((5, 5), (2, 5, 5))
    assert np.all(np.diff(both, axis=-1) >= 0.0)
    np.testing.assert_allclose(both[0], one, rtol=1e-4, atol=1e-5)


def test_the_utility_is_that_of_the_goal(trained):
    z, goal = jnp.linspace(-2.0, 2.0, 9), trained.goal
    expected = goal.location + goal.utility(z - goal.location)
    np.testing.assert_allclose(trained.utility(z), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["trained", "cvar_agent"])
def test_acting_in_the_wrapped_environment_is_the_policy(name, request):
    agent = request.getfixturevalue(name)
    face = GymnasiumFace(core=ENV)
    env = agent.wrap(face)
    policy = GreedyPolicy(agent._algorithm, agent.networks, agent.goal, agent.env)
    observation, info = env.reset(seed=5)
    accumulated, discount, over = 0.0, 1.0, False
    while not over:
        assert env.observation_space.contains(observation)
        action, _ = agent.predict(observation, action_masks=info["action_mask"])
        expected = policy(face.state, jnp.asarray(accumulated), jnp.asarray(discount))
        assert action == int(expected)
        assert info["action_mask"][action]
        observation, reward, terminated, truncated, info = env.step(action)
        accumulated, discount = accumulated + discount * reward, 0.99 * discount
        over = terminated or truncated
    assert discount == pytest.approx(0.99**3)


def test_the_default_environment_and_vectors_are_wrapped_too(trained, cvar_agent):
    observation, _ = trained.wrap().reset(seed=0)
    np.testing.assert_allclose(observation, [1, 0, 0, 0, 1])
    observation, _ = cvar_agent.wrap().reset(seed=0)
    np.testing.assert_allclose(observation, [1, 0, 0, float(cvar_agent.goal)], rtol=1e-6)
    env = trained.wrap(GymnasiumVectorFace(core=ENV, num_envs=2))
    assert isinstance(env, gym.vector.VectorEnv)
    observations, _ = env.reset(seed=0)
    assert trained.predict(observations)[0].shape == (2,)


def test_simulated_returns_depend_on_the_seed_alone(trained):
    returns = trained.simulate_returns(20, seed=3)
    assert returns.shape == (20,)
    np.testing.assert_array_equal(trained.simulate_returns(10, seed=3), returns[:10])
    assert not np.allclose(trained.simulate_returns(10, seed=4), returns[:10])


def test_simulated_returns_are_those_of_acting_in_the_environment(trained):
    # Both are samples of one distribution: 300 episodes with a standard deviation of about 1.
    env = trained.wrap(GymnasiumVectorFace(core=ENV, num_envs=300))
    observations, infos = env.reset(seed=7)
    total = np.zeros(300)
    for time in range(3):
        actions, _ = trained.predict(observations, action_masks=infos["action_mask"])
        observations, rewards, *_, infos = env.step(actions)
        total += 0.99**time * rewards
    simulated = trained.simulate_returns(20_000, seed=1)
    error = np.hypot(total.std() / np.sqrt(300), simulated.std() / np.sqrt(20_000))
    assert abs(total.mean() - simulated.mean()) < 4 * error


def test_it_says_what_it_is(trained):
    assert repr(trained) == "QRSRM(downside/MeanReversion-v0, risk='cvar(0.5)', 64 steps)"
    assert trained.name == "QR-SRM"


def test_the_root_of_all_randomness_stays_what_the_seed_made_it(trained):
    assert jax.random.key_data(run_of(trained).key).tolist() == [0, 0]


def test_environments_without_an_id_are_told_apart_by_their_numbers():
    class Mine(MeanReversion):
        pass

    def told(env):
        return Origin.of(env).as_json()

    assert told(Mine(sigma=0.5)) == told(Mine(sigma=0.5))
    assert told(Mine(sigma=0.5)) != told(Mine(sigma=0.6))
    assert told(Mine(periods=3)) != told(Mine(periods=4))
    assert told(walk_mdp().environment()) == told(walk_mdp().environment())
    assert told(walk_mdp(horizon=5).environment()) != told(walk_mdp().environment())
    assert "digest" not in told("downside/MeanReversion-v0")
