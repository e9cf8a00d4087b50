"""Training in environments that are not ours."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents.networks import members
from downside.train.hosted_compiled import best_actions, outer_step
from downside.train.hosted_run import HostedRun, with_starts
from downside.train.program import make_program

from .toys import Assorted, Counter, Faulty, Masked, Noisy

SMALL = {
    "hidden": (16, 16),
    "quantiles": 5,
    "batch_size": 16,
    "buffer_size": 1000,
    "warmup_steps": 50,
    "outer_interval": 25,
    "updates_per_step": 1,
    "update_interval": 1,
    "ensemble": 1,
}
"""Settings under which a run takes a second or two."""


def run_of(agent):
    return eqx.filter(agent._run, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, np.ndarray))


def plain(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def same(one, other):
    ours, theirs = jax.tree.leaves(run_of(one)), jax.tree.leaves(run_of(other))
    pairs = zip(ours, theirs, strict=True)
    return all(np.array_equal(plain(a), plain(b)) for a, b in pairs)


@pytest.mark.parametrize(
    "kind",
    [
        ds.QRSRM,
        pytest.param(ds.QRCVaR, marks=pytest.mark.long),
        pytest.param(ds.QRiCVaR, marks=pytest.mark.long),
        ds.QRDQN,
    ],
)
def test_every_agent_learns_to_take_the_action_that_pays(kind):
    risk = {} if kind is ds.QRDQN else {"risk": "cvar(0.5)"}
    agent = kind(Counter(), seed=1, **risk, **SMALL, learning_rate=3e-3).learn(2000)
    returns = agent.simulate_returns(4, seed=0)
    # Every step pays 1: 1 + γ + γ² + γ³.
    np.testing.assert_allclose(returns, (1 - 0.99**4) / 0.01, rtol=1e-6)


def test_a_gamble_is_taken_for_the_mean_and_left_for_the_tail():
    settings = {**SMALL, "quantiles": 20, "learning_rate": 3e-3}
    neutral = ds.QRDQN(Noisy(1), **settings).learn(1500)
    careful = ds.QRSRM(Noisy(1), risk="cvar(0.2)", **settings).learn(1500)
    # One gamble N(0.3, 1): its mean is 0.3, and its worst fifth -1.1 on average; not playing, 0.
    assert neutral.simulate_returns(50, seed=0).std() > 0.1
    assert careful.simulate_returns(50, seed=0).tolist() == [0.0] * 50


def test_the_same_seed_gives_the_same_agent_and_another_another():
    def make(seed):
        return ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=seed, **SMALL).learn(200)

    first, again, other = make(0), make(0), make(1)
    assert same(first, again)
    assert not same(first, other)


def test_an_agent_acts_in_episodes_as_it_predicts_whatever_was_compiled_for_another():
    for seed in (0, 1):
        agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=seed, **SMALL).learn(200)
        policy = agent.policy
        size = policy.observation_space.shape[0]
        seen = np.random.default_rng(seed).normal(size=(40, size)).astype(np.float32)
        choose = best_actions(policy.algorithm, policy.networks, policy.goal)
        everything = np.ones((40, policy.num_actions), bool)
        chosen = choose(seen[:, :-2], seen[:, -2], seen[:, -1], everything)
        np.testing.assert_array_equal(chosen, agent.predict(seen)[0])
        only = everything & (np.arange(policy.num_actions) == 1)
        assert (choose(seen[:, :-2], seen[:, -2], seen[:, -1], only) == 1).all()


def test_illegal_actions_are_never_taken():
    agent = ds.QRSRM(Masked(), risk="cvar(0.5)", **SMALL).learn(1000)  # the environment would raise
    assert agent.simulate_returns(4, seed=0) == pytest.approx(0.99 + 0.99**3)


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode), ids=lambda one: one.name)
def test_vector_environments_of_every_mode_train(mode):
    env = gym.vector.SyncVectorEnv([Counter, Counter], autoreset_mode=mode)
    agent = ds.QRSRM(env, risk="cvar(0.5)", learning_rate=3e-3, **SMALL).learn(3000)
    assert agent.settings.num_envs == 2
    assert agent.simulate_returns(4, seed=0) == pytest.approx((1 - 0.99**4) / 0.01)


def test_observations_of_several_kinds_train_and_are_predicted_for():
    agent = ds.QRDQN(Assorted(), learning_rate=3e-3, **SMALL).learn(2000)
    env = Assorted()
    observation, _ = env.reset(seed=0)
    assert agent.predict(observation) == (1, None)
    vector = gym.vector.SyncVectorEnv([Assorted, Assorted])
    batch, _ = vector.reset(seed=0)
    assert agent.predict(batch)[0].tolist() == [1, 1]
    with pytest.raises(ValueError, match="`observation` must be one of Dict"):
        agent.predict(3.0)


def test_a_wrapped_environment_is_what_the_policy_acts_on():
    settings = {"learning_rate": 3e-3, "past_steps": 0, **SMALL}
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **settings).learn(2000)
    env = agent.wrap(Counter())
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == [0.0, -1.0, 0.0, 1.0]
    total, discount, over = 0.0, 1.0, False
    while not over:
        action, _ = agent.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, discount, over = total + discount * reward, 0.99 * discount, terminated or truncated
    assert observation[2] == pytest.approx(total)
    assert agent.return_distribution(observation).shape == (2, 5)
    with pytest.raises(ValueError, match=r"`observation` must have shape \(4,\)"):
        agent.predict(np.zeros(2))


def test_what_was_learned_survives_an_environment_that_breaks():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(100)
    before = agent.num_timesteps
    agent.set_env(Faulty("raises"))
    with pytest.raises(ds.EnvironmentFaultError, match=r"agent\.resume\(\)"):
        agent.learn(500, reset_num_timesteps=False)
    assert agent.num_timesteps >= before
    agent.set_env(Counter())
    agent.resume()
    assert agent.num_timesteps == before + 500


def test_what_needs_a_simulator_is_refused():
    with pytest.raises(ValueError, match="`near_greedy` must be 0 for an environment that is not"):
        ds.QRSRM(Counter(), risk="cvar(0.5)", near_greedy=2)
    with pytest.raises(ValueError, match="`outer` must be 'lived' or 'learned' for an environment"):
        ds.QRSRM(Counter(), risk="cvar(0.5)", outer="simulated")
    with pytest.raises(ValueError, match="`critic` must be 'quantiles' for an environment that"):
        ds.QRSRM(Counter(), risk="cvar(0.5)", critic="utility")


def test_a_module_as_network_is_one_and_a_function_makes_as_many_as_are_asked_for():
    module = eqx.nn.MLP(2, 8, 8, 1, key=jax.random.key(0))
    assert ds.QRDQN(Counter(), network=module).settings.ensemble == 1
    with pytest.raises(ValueError, match="`ensemble` must be 1 with a `network` that is a module"):
        ds.QRDQN(Counter(), network=module, ensemble=2)
    made = ds.QRDQN(Counter(), network=lambda key, size: eqx.nn.MLP(size, 8, 8, 1, key=key))
    assert made.settings.ensemble == 2


def test_whoever_plays_in_the_environment_during_training_leaves_no_trace_in_it():
    # Chunks of 25 steps end in the middle of an episode of four, where the callback plays others.
    callback = ds.Evaluations(every_steps=1, episodes=3)
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(200, callback=callback)
    assert len(callback.results) == 8
    run = run_of(agent)
    assert set(run.episodes.filled()[:, 2]) == {4.0}
    stored = [np.asarray(leaf)[: int(run.replay.added)] for leaf in run.replay.storage]
    observations, after = stored[0], stored[5]
    np.testing.assert_array_equal(after[:, 0], observations[:, 0] + 1)  # time goes on by one
    np.testing.assert_allclose(stored[2], 0.99 ** observations[:, 0], rtol=1e-5)


@pytest.mark.parametrize(("limit", "length"), [(7, 7), (-1, 12)])
def test_a_changed_time_limit_is_part_of_the_problem(limit, length):
    make: Any = Counter
    gym.register("DownsideTestCounter-v0", make, kwargs={"length": 12}, max_episode_steps=10)
    try:
        env = gym.make("DownsideTestCounter-v0", max_episode_steps=limit)
        agent = ds.QRDQN(env, **SMALL)
        assert dict(agent.origin.parameters) == {"length": 12, "max_episode_steps": limit}
        again = gym.make(agent.origin.description, **agent.origin.parameters)
        again.reset(seed=0)
        steps, over = 0, False
        while not over:
            *_, terminated, truncated, _ = again.step(1)
            steps, over = steps + 1, terminated or truncated
        assert steps == length
        plain = ds.QRDQN(gym.make("DownsideTestCounter-v0"), **SMALL)
        assert "max_episode_steps" not in plain.origin.parameters
    finally:
        del gym.registry["DownsideTestCounter-v0"]


def test_a_discreet_agent_is_deaf_to_its_memory_until_h_bends():
    settings = {**SMALL, "neutral_fraction": 0.5, "relabel": 0.25, "ensemble": 2, "past_steps": 0}
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", discreet=True, **settings)
    felt = []

    def feel(agent):
        networks, goal = agent._run.learner.networks, agent._run.goal
        quantiles = [
            networks.quantiles(agent._algorithm.view(jnp.array([1.0, 1.0, s, 0.9]), goal))
            for s in (0.0, 2.0)
        ]
        weights = [one.trunk.layers[0].weight[-2:] for one in members(networks.quantiles)]
        felt.append((not np.allclose(*quantiles), bool(np.abs(weights).sum() > 0)))

    agent.learn(200, callback=feel)  # the first outer step is made after half of eight chunks
    assert felt[:3] == [(False, False)] * 3
    assert felt[-1] == (True, True)


@pytest.mark.parametrize("given", ["module", "function"])
def test_a_network_of_ours_may_be_given(given):
    module = ds.MLP(jax.random.key(0), 4, (16, 16), "relu")  # of the observation and (s, c)
    network = module if given == "module" else lambda key, size: ds.MLP(key, size, (16,), "relu")
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", network=network, past_steps=0, **SMALL)
    program = make_program(agent._core, agent.settings, agent._make_trunk, 100)
    (fresh,) = members(agent._loop.skeleton(program, agent._algorithm).learner.networks.quantiles)
    weight = fresh.trunk.layers[0].weight
    assert (np.abs(weight).sum(axis=1) > 0).tolist() == [True, True, False, False]
    (learned,) = members(agent.learn(100).networks.quantiles)
    assert learned.trunk.layers[0].weight.shape == weight.shape


def test_the_scale_of_an_input_does_not_depend_on_how_many_others_there_are():
    settings = {"hidden": (16,), "warmup_steps": 500, "past_steps": 1, "outer_interval": 100}
    scales = [
        members(agent.learn(100).networks.quantiles)[0].scale
        for agent in (
            ds.QRDQN("CartPole-v1", **settings),
            ds.QRSRM("CartPole-v1", risk="cvar(0.2)", **settings),
        )
    ]
    for name in ("input_mean", "input_spread"):
        one, other = (np.asarray(getattr(scale, name)) for scale in scales)
        np.testing.assert_array_equal(one, other[:-2])  # to the last bit: or the runs soon part


def test_qr_srm_is_qr_dqn_until_h_bends():
    settings = {"hidden": (16, 16), "neutral_fraction": 0.5, "warmup_steps": 500, "quantiles": 10}
    settings["outer_interval"] = 150  # 600 steps
    neutral = ds.QRDQN("CartPole-v1", past_steps=1, **settings).learn(2400).history
    mean = ds.QRSRM("CartPole-v1", risk="mean", **settings).learn(2400).history
    averse = ds.QRSRM("CartPole-v1", risk="cvar(0.2)", **settings).learn(2400).history
    losses = [[one["critic_loss"] for one in history] for history in (neutral, mean, averse)]
    # To the last bit here; other processors may round differently.
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert losses[0][:2] == pytest.approx(losses[2][:2], rel=1e-3)
    assert losses[0][2:] != losses[2][2:]


def test_another_environment_must_have_the_same_spaces():
    agent = ds.QRDQN(Counter(), **SMALL)
    with pytest.raises(ValueError, match=r"`env` must have observations of shape \(2,\) and 2"):
        agent.set_env(Assorted())


def test_episodes_are_valued_in_as_many_environments_as_there_are():
    env = gym.vector.SyncVectorEnv([lambda: Counter(2), lambda: Counter(6)])
    agent = ds.QRDQN(env, learning_rate=3e-3, **SMALL).learn(2000)
    returns = agent.simulate_returns(7, seed=0)
    # In turns, four of the first and three of the second: short episodes are not preferred.
    short, long = (1 - 0.99**2) / 0.01, (1 - 0.99**6) / 0.01
    np.testing.assert_allclose(returns, [short, long] * 3 + [short], rtol=1e-6)


def test_the_update_ratio_does_not_depend_on_the_number_of_environments():
    one = ds.QRDQN(gym.make("CartPole-v1")).settings
    many = ds.QRDQN("CartPole-v1").settings
    assert (one.updates_per_step, one.update_interval, one.num_envs) == (1, 4, 1)
    assert (many.updates_per_step, many.update_interval, many.num_envs) == (2, 1, 8)
    more = ds.QRDQN("CartPole-v1", num_envs=32).settings
    handed = ds.QRDQN(gym.make_vec("CartPole-v1", num_envs=32, vectorization_mode="sync")).settings
    assert more == handed
    assert (more.updates_per_step, more.update_interval) == (8, 1)


LARGER = {
    **SMALL,
    "hidden": (32, 32),
    "batch_size": 32,
    "buffer_size": 10_000,
    "warmup_steps": 2000,
    "outer_interval": 100,
    "updates_per_step": 4,
    "learning_rate": 3e-3,
    "target_rate": 1.0,
    "target_interval": 50,
}


def test_frozen_lake_is_crossed():
    lake = {"env_kwargs": {"is_slippery": False}, "num_envs": 8, "exploration_fraction": 0.5}
    agent = ds.QRDQN("FrozenLake-v1", **lake, **LARGER).learn(12_000)
    # Six steps to the goal at best, which pays 1; random play gets there once in seventy episodes.
    assert agent.simulate_returns(8, seed=0) == pytest.approx(0.99**5)


@pytest.mark.long
def test_a_vector_environment_made_by_gymnasium_trains():
    env = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    agent = ds.QRSRM(env, risk="cvar(0.5)", **LARGER).learn(10_000)
    # Random play stays up for 22 steps: a discounted return of 19; 70 steps are 50.
    assert ds.CVaR(0.5)(agent.simulate_returns(20, seed=0)) > 50


def test_where_no_episode_ends_there_is_an_error_and_not_a_riddle():
    class Endless(Counter):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, False, info

    with pytest.raises(ds.EnvironmentFaultError, match=r"No episode of .* ended in .*TimeLimit"):
        ds.QRDQN(Endless(), **SMALL).learn(100)


def kept_of(windows):
    """Which of some policies are kept, one after the other, by the episodes of each."""
    agent = ds.QRDQN(Counter(), **SMALL).learn(50)
    run = agent._run
    assert isinstance(run, HostedRun)
    assert agent._program is not None
    program = with_starts(agent._program, run)
    kept, yes = eqx.tree_at(lambda one: one.value, run.kept, jnp.asarray(-jnp.inf)), jnp.array(True)
    accepted = []
    for step, window in enumerate(windows):
        networks = jax.tree.map(lambda leaf, n=step: leaf * 0 + n, run.learner.networks)
        _, kept, _, _ = outer_step(
            program,
            agent._algorithm,
            run.learner.networks,
            networks,
            run.goal,
            yes,
            kept,
            run.key,
            window,
            yes,
            yes,
        )
        accepted.append(float(jax.tree.leaves(kept.networks)[0].ravel()[0]) == step)
    return accepted, float(kept.value)


def test_the_kept_policy_does_not_sink_with_those_that_come_close():
    # Each is 0.4 standard errors below the one before.
    accepted, value = kept_of(jnp.linspace(-1.0, 1.0, 100) - 0.4 * i * 0.0583 for i in range(20))
    assert accepted == [True] * 8 + [False] * 12  # up to three of them
    assert value == pytest.approx(0.0, abs=1e-6)


def test_of_policies_that_always_earn_the_same_the_last_is_kept():
    assert kept_of([jnp.full(100, 2.0)] * 3) == ([True] * 3, 2.0)


def test_a_step_that_diverged_leaves_the_run_where_it_was(monkeypatch):
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **SMALL).learn(100)
    steps, advance = agent.num_timesteps, agent._loop.advance

    def broken(*arguments):
        run, record = advance(*arguments)
        return run, {**record, "critic_loss": float("nan")}

    monkeypatch.setattr(agent._loop, "advance", broken)
    with pytest.raises(ds.DivergenceError):
        agent.learn(100, reset_num_timesteps=False)
    assert agent.num_timesteps == steps
