from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents import (
    DQN,
    SRM,
    BranchedTransition,
    ICVaR,
    Networks,
    QuantileLearner,
    ShiftedUtility,
    SimulatorSettings,
    StaticCVaR,
)
from downside.agents.learner import Normalisation
from downside.agents.networks import Ensemble, Network, make_trunk
from downside.agents.quantile_learner import advantage_loss
from downside.envs import Memory
from downside.risk import CVaR, Mean, Utility

from .by_hand import linear_network

OUTER = ShiftedUtility(
    Utility(jnp.array([1.0]), jnp.array([2.0]), offset=jnp.array(1.0)), jnp.array(2.0)
)
"""u(z) = 1 + 2 min(z - 1, 0) at l = 2."""
NOTHING = jnp.zeros(())
START = Memory(jnp.zeros(()), jnp.ones(()))


def learner_of(algorithm, risk, *, num_actions=2, updates=100, anchored=False, **changes) -> Any:
    """The learner of an algorithm whose networks start as MLPs of the hidden sizes."""
    settings = SimulatorSettings(**{"gamma": 0.5, **changes})
    trunk = make_trunk(None, settings.hidden_sizes, settings.activation)
    made = algorithm.make(risk, settings)
    return QuantileLearner(made, settings, trunk, num_actions, updates, updates, anchored)


def memories(pairs):
    pairs = jnp.asarray(pairs, float)
    return Memory(pairs[..., 0], pairs[..., 1])


def transition(rewards, after, masks, terminated, *, actions=(0,), observation=None, memory=None):
    """With as many actions and outcomes as `rewards` has rows and columns.

    The entries of `after` are an observation, or an observation and (s, c).
    """
    after = jnp.asarray(after, float)
    next_memory = memories(after[..., 1:]) if after.shape[-1] == 3 else _starts(after.shape[:-1])
    return BranchedTransition(
        after[0, 0, :1] if observation is None else jnp.asarray(observation, float),
        START if memory is None else memory,
        jnp.asarray(actions, jnp.int32),
        jnp.ones(len(actions)),
        jnp.asarray(rewards, float),
        after[..., :1],
        next_memory,
        jnp.asarray(masks, bool),
        jnp.asarray(terminated, bool),
        jnp.full(jnp.shape(jnp.asarray(rewards)), 0.5),
    )


def _starts(shape):
    return Memory(jnp.zeros(shape), jnp.ones(shape))


def batch_of(made):
    return jax.tree.map(lambda leaf: leaf[None], made)


# --- targets ----------------------------------------------------------------------------------


def scorer():
    """Scores of the inputs (x, s - l, c): x + (s - l) of action 0, 3 of action 1."""
    critic = linear_network([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [0.0, 3.0], (2,))
    return Networks(critic, linear_network([[0.0]] * 3, [0.0], (1, 1)))


@pytest.mark.slow
def test_the_value_of_an_action_is_the_mean_over_outcomes_of_what_follows():
    # Outcome 1: x' = 5, s' = 1: scores 5 + (1 - 2) = 4 and 3, the best is 4.
    # Outcome 2 ends with s' = 2.5: u(0.5) = 1 + 2 * (-0.5) = 0. The mean is 2.
    learner = learner_of(SRM, CVaR(0.5))
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    made = transition([[0.0, 0.0]], after, [[[1, 1], [1, 1]]], [[0, 1]])
    np.testing.assert_allclose(learner.critic_targets(scorer(), made, OUTER), [2.0])


def test_actions_that_are_illegal_next_are_ignored():
    # As above, but in outcome 1 only the action worth 3 is legal; none is where it is over.
    learner = learner_of(SRM, CVaR(0.5))
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    made = transition([[0.0, 0.0]], after, [[[0, 1], [0, 0]]], [[0, 1]])
    np.testing.assert_allclose(learner.critic_targets(scorer(), made, OUTER), [1.5])


def test_the_shortfall_that_follows_is_discounted():
    # b_0 = 4. The critic sees (x, b): scores x + b and 3. Outcome 1 with s' = 1, c' = 0.5: b' = 6,
    # x' = -5: 1 and 3, the best is 3, discounted by 0.5. Outcome 2 ends with s' = 3.5: b' = 1, and
    # -0.5 * 1 / 0.5 for CVaR at 0.5. The mean is (1.5 - 1) / 2.
    learner = learner_of(StaticCVaR, CVaR(0.5))
    critic = linear_network([[1.0, 0.0], [1.0, 0.0]], [0.0, 3.0], (2,))
    networks = Networks(critic, linear_network([[0.0]] * 2, [0.0], (1, 1)))
    after = [[[-5.0, 1.0, 0.5], [100.0, 3.5, 0.5]]]
    made = transition([[0.0, 0.0]], after, [[[1, 1], [1, 1]]], [[0, 1]])
    np.testing.assert_allclose(learner.critic_targets(networks, made, jnp.array(4.0)), [0.25])


def test_an_anchored_critic_adds_to_what_is_earned_already():
    # Outcome 1 (x' = 5, s' = 1, c' = 0.5): u(1 - 2) = 1 + 2 * (-2) = -3, and half of the outputs
    # (4, 3); the best is -1. Outcome 2 is over, and still u(0.5) = 0. The mean is -0.5.
    learner = learner_of(SRM, CVaR(0.5), anchored=True)
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    scores = learner.scores(scorer(), jnp.array([5.0]), memories([1.0, 0.5]), OUTER)
    np.testing.assert_allclose(scores, [-1.0, -1.5])
    made = transition([[0.0, 0.0]], after, [[[1, 1], [1, 1]]], [[0, 1]])
    np.testing.assert_allclose(learner.critic_targets(scorer(), made, OUTER), [-0.5])


@pytest.mark.slow
def test_an_anchored_critic_learns_what_to_add():
    # In the one state s - l = -1, c = 0.5; both actions end with s' - l = 1: the score is 1 there,
    # so that -3 + f / 2 = 1 and f = 8.
    learner = learner_of(
        SRM,
        CVaR(0.5),
        anchored=True,
        optimiser="adam",
        learning_rate=0.05,
        final_learning_rate=1.0,
    )
    critic = linear_network([[0.0, 0.0]] * 3, [0.0, 0.0], (2,))
    quantiles = linear_network([[0.0, 0.0]] * 3, [0.0, 0.0], (2, 1))
    state = learner.restart(Networks(critic, quantiles))
    after = [[[0.0, 3.0, 0.25]], [[0.0, 3.0, 0.25]]]
    now = memories([1.0, 0.5])
    made = transition(
        [[0.0]] * 2, after, [[[1, 1]]] * 2, [[1]] * 2, actions=(0, 1), observation=[0], memory=now
    )
    update = eqx.filter_jit(lambda state: learner.update_critic(state, batch_of(made), OUTER)[0])
    for _ in range(400):
        state = update(state)
    observation = jnp.zeros(1)
    got = learner.scores(state.networks, observation, now, OUTER)
    np.testing.assert_allclose(got, [1.0, 1.0], atol=0.01)
    inputs = learner.algorithm.network_input(observation, now, OUTER)
    np.testing.assert_allclose(state.networks.critic(inputs), [8.0, 8.0], atol=0.02)


def returns_network():
    """Quantiles of the return at x: (x, x + 4) of action 0, (1, 2) of action 1."""
    network = linear_network([[1.0, 1.0, 0.0, 0.0]], [0.0, 4.0, 1.0, 2.0], (2, 2))
    return Networks(None, network)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masks", "terminated", "expected"),
    [
        # gamma = 0.5. x' = 0: means 2 and 1.5, so 2 + 0.5 * (0, 4).
        # x' = -3: means -1 and 1.5, so -1 + 0.5 * (1, 2).
        ([[1, 1], [1, 1]], [0, 0], [2, 4, -0.5, 0]),
        ([[1, 1], [1, 1]], [0, 1], [2, 4, -1, -1]),
        ([[0, 1], [1, 0]], [0, 0], [2.5, 3, -2.5, -0.5]),
    ],
)
def test_samples_of_the_return_follow_the_best_legal_action(masks, terminated, expected):
    learner = learner_of(DQN, Mean())
    made = transition([[2.0, -1.0]], [[[0.0], [-3.0]]], [masks], [terminated])
    got = learner.quantile_targets(returns_network(), made, NOTHING)
    np.testing.assert_allclose(got, [expected])


def two_opinions():
    """The networks of `returns_network`, and a second one: (x - 3, x + 9) and (1, 2)."""
    other = linear_network([[1.0, 1.0, 0.0, 0.0]], [-3.0, 9.0, 1.0, 2.0], (2, 2))
    first = returns_network().quantiles
    assert isinstance(first, Network)
    return Networks(None, Ensemble((first, other)))


def test_several_networks_act_by_the_mean_of_their_quantiles():
    # At x = 0: ((0, 4) + (-3, 9)) / 2 and (1, 2); the means of these are 2.5 and 1.5.
    learner, observation, networks = learner_of(DQN, Mean()), jnp.zeros(1), two_opinions()
    got = learner.return_quantiles(networks, observation, START, NOTHING)
    np.testing.assert_allclose(got, [[-1.5, 6.5], [1.0, 2.0]])
    got = learner.scores(networks, observation, START, NOTHING)
    np.testing.assert_allclose(got, [2.5, 1.5])
    got = learner.scores(networks, observation, START, NOTHING, jnp.array([1]))
    np.testing.assert_allclose(got, [1.5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("risk", "expected"),
    [
        # Of action 0 the first network expects (0, 4) and the second (-3, 9). By the mean the first
        # is the lower one (2 and 3), by CVaR at 0.5 the second (0 and -3); but by CVaR the mean of
        # both, (-1.5, 6.5), makes action 1 the best: (1, 2), of which both say the same.
        (Mean(), [2.0, 4.0]),
        (CVaR(0.5), [2.5, 3.0]),
    ],
)
def test_targets_come_from_the_network_that_scores_the_chosen_action_lowest(risk, expected):
    learner = learner_of(ICVaR, risk, quantiles=2)
    made = transition([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    got = learner.quantile_targets(two_opinions(), made, NOTHING)
    np.testing.assert_allclose(got, [expected])


def test_lowest_means_lowest_by_the_risk_measure():
    # Only action 0 is legal. By CVaR at 0.5 the second network is the lower one: 2 + (-3, 9) / 2.
    learner = learner_of(ICVaR, CVaR(0.5), quantiles=2)
    made = transition([[2.0]], [[[0.0]]], [[[1, 0]]], [[0]])
    got = learner.quantile_targets(two_opinions(), made, NOTHING)
    np.testing.assert_allclose(got, [[0.5, 6.5]])


@pytest.mark.parametrize("num_critics", [1, 2])
def test_target_networks_are_asked_once(num_critics):
    # The choice of an action and what follows it need the same quantiles; the compiler does not
    # find that out by itself.
    learner = learner_of(
        DQN, Mean(), num_critics=num_critics, critic="quantiles", quantiles=2, hidden_sizes=(4, 4)
    )
    networks = learner.init(jax.random.key(0), 1, None).networks
    made = transition([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    program = jax.make_jaxpr(lambda made: learner.quantile_targets(networks, made, NOTHING))(made)
    assert str(program).count("= dot_general") == num_critics * 3  # two layers and the head


@pytest.mark.slow
def test_each_of_several_networks_learns_the_targets_from_a_start_of_its_own():
    # One state, one action, which pays 1 and ends: all networks end up there.
    learner = learner_of(
        DQN,
        Mean(),
        num_actions=1,
        num_critics=3,
        critic="quantiles",
        quantiles=2,
        hidden_sizes=(4,),
        kappa=0.01,
        optimiser="adam",
        learning_rate=0.02,
        final_learning_rate=1.0,
    )
    state = learner.init(jax.random.key(0), 1, None)
    first = [member.trunk.layers[0].weight for member in state.networks.quantiles.members]
    assert not np.allclose(first[0], first[1])
    assert not np.allclose(first[1], first[2])
    batch = batch_of(transition([[1.0]], [[[0.5]]], [[[1]]], [[1]]))
    update = eqx.filter_jit(lambda state: learner.update(state, batch, NOTHING, jnp.ones(()))[0])
    for _ in range(300):
        state = update(state)
    learned = state.networks.quantiles.each(jnp.array([0.5]))
    np.testing.assert_allclose(learned, np.ones((3, 1, 2)), atol=0.05)


def test_a_critic_decides_whose_quantiles_follow():
    # The quantiles alone prefer action 0; the critic prefers action 1.
    critic = linear_network([[0.0, 0.0]], [0.0, 1.0], (2,))
    networks = Networks(critic, returns_network().quantiles)
    learner, observation = learner_of(DQN, Mean()), jnp.zeros(1)
    np.testing.assert_allclose(learner.scores(networks, observation, START, NOTHING), [0, 1])
    everything = jnp.ones(2, bool)
    assert learner.act(networks, observation, START, everything, NOTHING) == 1
    assert learner.act(returns_network(), observation, START, everything, NOTHING) == 0
    only_second = jnp.array([False, True])
    assert learner.act(returns_network(), observation, START, only_second, NOTHING) == 1
    made = transition([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    np.testing.assert_allclose(learner.quantile_targets(networks, made, NOTHING), [[2.5, 3]])


def test_what_is_best_depends_on_what_was_earned():
    # u(s - l + θ) with l = 2, flat above 3: quantiles (-2, 4) or (0.5, 0.5).
    # s = 2: u = (1 - 6, 1) and (0, 0): means -2 and 0. s = 5: (1, 1) and (1, 1), all alike; s = 0:
    # θ - 2 = (-4, 2), u = (-9, 1); (-1.5, -1.5), u = (-4, -4): means -4 for both.
    network = linear_network([[0.0] * 4] * 3, [-2.0, 4.0, 0.5, 0.5], (2, 2))
    learner, networks = learner_of(SRM, CVaR(0.5)), Networks(None, network)
    for earned, expected in ((2.0, [-2.0, 0.0]), (5.0, [1.0, 1.0]), (0.0, [-4.0, -4.0])):
        got = learner.scores(networks, jnp.zeros(1), memories([earned, 1.0]), OUTER)
        np.testing.assert_allclose(got, expected)


# --- losses -----------------------------------------------------------------------------------


def test_the_loss_splits_errors_into_a_common_part_and_differences():
    # Errors (3, -2, 0) with shares (1/2, 1/4, 1/4): the common part is 1, the rest (2, -3, -1);
    # 1 + 10 * (4/2 + 9/4 + 1/4) = 46.
    loss = advantage_loss(
        jnp.array([3.0, 2.0, 5.0]), jnp.array([0.0, 4.0, 5.0]), jnp.array([1.0, 0.5, 0.5]), 10.0
    )
    np.testing.assert_allclose(loss, 46.0)


def test_with_a_weight_of_one_it_is_the_mean_squared_error():
    loss = advantage_loss(jnp.array([3.0, 2.0]), jnp.array([0.0, 4.0]), jnp.ones(2), 1.0)
    np.testing.assert_allclose(loss, (9 + 4) / 2)


def test_an_action_without_weight_does_not_count():
    loss = advantage_loss(jnp.array([3.0, 1e6]), jnp.array([1.0, 0.0]), jnp.array([0.2, 0.0]), 10.0)
    np.testing.assert_allclose(loss, 4.0)


# --- updates ----------------------------------------------------------------------------------

SIZE, ACTIONS, BATCH = 2, 3, 8
"""Numbers in an observation, without (s, c); actions; transitions in a batch."""


def random_batch():
    """Transitions with two actions and two outcomes; every other one ends."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def discounts(*shape):
        return jnp.asarray(rng.uniform(size=shape), jnp.float32)

    outcomes = (BATCH, 2, 2)
    return BranchedTransition(
        normal(BATCH, SIZE),
        Memory(normal(BATCH), discounts(BATCH)),
        jnp.asarray(rng.integers(0, ACTIONS, size=(BATCH, 2)), jnp.int32),
        jnp.asarray([[1.0, 0.2]] * BATCH),
        normal(*outcomes),
        normal(*outcomes, SIZE),
        Memory(normal(*outcomes), discounts(*outcomes)),
        jnp.ones((*outcomes, ACTIONS), bool),
        jnp.asarray(np.arange(BATCH * 4).reshape(outcomes) % 2 == 0),
        jnp.full(outcomes, 0.99),
    )


def run(count, *, quantiles=False, **changes) -> Any:
    """The states before and after each of some updates on one batch, and the losses."""
    learner = learner_of(
        SRM,
        CVaR(0.5),
        num_actions=ACTIONS,
        updates=count,
        quantiles=5,
        hidden_sizes=(16, 16),
        **changes,
    )
    size = SIZE + 2
    normalisation = Normalisation(
        jnp.full(size, 0.1), jnp.full(size, 2.0), jnp.array(0.5), jnp.array(3.0), jnp.array(3.0)
    )
    state = learner.init(jax.random.key(0), size, normalisation)
    batch, unit = random_batch(), jnp.array(3.0)
    update = learner.update_quantiles if quantiles else learner.update
    update = eqx.filter_jit(lambda state, update=update: update(state, batch, OUTER, unit))
    states, losses = [state], []
    for _ in range(count):
        state, loss = update(state)
        states.append(state)
        losses.append(float(loss))
    return states, losses


@pytest.mark.slow
def test_networks_start_with_the_scale_of_the_warm_up():
    state = run(0)[0][0]
    for networks in (state.networks, state.targets):
        for network in (networks.critic, networks.quantiles):
            np.testing.assert_allclose(network.scale.input_mean, [0.1] * 4)
            np.testing.assert_allclose(network.scale.input_spread, [2.0] * 4)
            np.testing.assert_allclose(network.scale.output_spread, 3.0)
        # The score of the critic is relative to the location of h, so that its mean stays 0.
        assert networks.critic.scale.output_mean == 0.0
        assert networks.quantiles.scale.output_mean == 0.5


def same(first, second, **tolerance):
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.allclose(a, b, **tolerance) for a, b in leaves)


@pytest.mark.slow
@pytest.mark.parametrize("quantiles", [False, True], ids=["critic", "quantiles"])
def test_updates_on_a_fixed_batch_reduce_its_loss(quantiles):
    states, losses = run(30, quantiles=quantiles, learning_rate=0.02, target_rate=0.01)
    # The quantile loss has a floor: the spread of the targets around their quantiles.
    assert losses[-1] < (0.9 if quantiles else 0.7) * losses[0]
    first, last = states[0], states[-1]
    changed, kept = ("quantiles", "critic") if quantiles else ("critic", "quantiles")
    assert not same(getattr(first.networks, changed), getattr(last.networks, changed))
    assert same(getattr(first.networks, kept), getattr(last.networks, kept), rtol=0, atol=0)
    for network in (getattr(last.networks, changed), getattr(last.targets, changed)):
        expected = getattr(first.networks, changed).scale
        assert same(network.scale, expected, rtol=1e-6)  # measured, not learned
    counts = (int(last.critic_updates), int(last.quantile_updates))
    assert counts == ((0, 30) if quantiles else (30, 0))


@pytest.mark.slow
def test_target_networks_follow_by_a_share_of_the_way():
    (before, after), _ = run(1, target_rate=0.25, final_learning_rate=1.0, optimiser="adam")
    expected = jax.tree.map(
        lambda old, new: old + 0.25 * (new - old), before.targets.critic, after.networks.critic
    )
    assert same(after.targets.critic, expected, rtol=1e-5, atol=1e-7)
    assert not same(after.targets.critic, before.targets.critic)


@pytest.mark.slow
def test_hard_copies_are_made_at_the_interval_and_only_then():
    (start, first, second, third), _ = run(
        3, target_rate=1.0, target_interval=2, final_learning_rate=1.0, optimiser="adam"
    )
    assert same(first.targets.critic, start.networks.critic, rtol=0, atol=0)
    assert same(second.targets.critic, second.networks.critic, rtol=1e-6, atol=1e-7)
    assert same(third.targets.critic, second.targets.critic, rtol=0, atol=0)
    assert not same(third.networks.critic, second.networks.critic)
