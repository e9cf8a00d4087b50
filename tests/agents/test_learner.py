import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from downside.agents import DQN, SRM, Aim, Decision, ICVaR, Networks, Settings, action_scores
from downside.agents.learner import (
    best_action,
    critic_loss,
    critic_targets,
    make_learner,
    make_networks,
    quantile_targets,
    update_critic,
    update_quantiles,
    with_scale,
)
from downside.agents.networks import Ensemble, Network, Scale, make_trunk
from downside.agents.optimisers import make_optimiser
from downside.risk import CVaR, Mean, Utility

from .by_hand import linear_network

GOAL = Aim(Utility(jnp.array([1.0]), jnp.array([2.0]), offset=jnp.array(1.0)), jnp.array(2.0))
"""u(z) = 1 + 2 min(z - 1, 0) at l = 2."""
NO_GOAL = jnp.zeros(())


def decision(rewards, after, masks, terminated, actions=(0,), observation=None):
    """One with as many actions and outcomes as `rewards` has rows and columns."""
    after = jnp.asarray(after, float)
    seen = after[0, 0] if observation is None else jnp.asarray(observation, float)
    return Decision(
        seen,
        jnp.asarray(actions, jnp.int32),
        jnp.ones(len(actions)),
        jnp.asarray(rewards, float),
        after,
        jnp.asarray(masks, bool),
        jnp.asarray(terminated, bool),
        jnp.full(jnp.shape(jnp.asarray(rewards)), 0.5),
    )


# --- targets ----------------------------------------------------------------------------------


def scorer():
    """Scores of the view (x, s - l, c): x + (s - l) of action 0, 3 of action 1."""
    critic = linear_network([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [0.0, 3.0], (2,))
    return Networks(critic, linear_network([[0.0]] * 3, [0.0], (1, 1)))


def test_the_value_of_an_action_is_the_mean_over_outcomes_of_what_follows():
    # Outcome 1: x' = 5, s' = 1: scores 5 + (1 - 2) = 4 and 3, the best is 4.
    # Outcome 2 ends with s' = 2.5: u(0.5) = 1 + 2 * (-0.5) = 0. The mean is 2.
    algorithm = SRM.make(CVaR(0.5), Settings())
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    made = decision([[0.0, 0.0]], after, [[[1, 1], [1, 1]]], [[0, 1]])
    np.testing.assert_allclose(critic_targets(algorithm, scorer(), made, GOAL), [2.0])


def test_actions_that_are_illegal_next_are_ignored():
    # As above, but in outcome 1 only the action worth 3 is legal; none is where it is over.
    algorithm = SRM.make(CVaR(0.5), Settings())
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    made = decision([[0.0, 0.0]], after, [[[0, 1], [0, 0]]], [[0, 1]])
    np.testing.assert_allclose(critic_targets(algorithm, scorer(), made, GOAL), [1.5])


def test_an_anchored_critic_adds_to_what_is_earned_already():
    # Outcome 1 (x' = 5, s' = 1, c' = 0.5): u(1 - 2) = 1 + 2 * (-2) = -3, and half of the outputs
    # (4, 3); the best is -1. Outcome 2 is over, and still u(0.5) = 0. The mean is -0.5.
    algorithm = SRM.make(CVaR(0.5), Settings())
    networks = Networks(scorer().critic, scorer().quantiles, anchored=True)
    after = [[[5.0, 1.0, 0.5], [100.0, 2.5, 0.5]]]
    seen = jnp.array(after[0][0])
    np.testing.assert_allclose(action_scores(algorithm, networks, seen, GOAL), [-1.0, -1.5])
    made = decision([[0.0, 0.0]], after, [[[1, 1], [1, 1]]], [[0, 1]])
    np.testing.assert_allclose(critic_targets(algorithm, networks, made, GOAL), [-0.5])


def test_an_anchored_critic_learns_what_to_add():
    # In the one state s - l = -1, c = 0.5; both actions end with s' - l = 1: the score is 1 there,
    # so that -3 + f / 2 = 1 and f = 8.
    algorithm, settings = SRM.make(CVaR(0.5), Settings()), Settings(learning_rate=0.1)
    critic = linear_network([[0.0, 0.0]] * 3, [0.0, 0.0], (2,))
    quantiles = linear_network([[0.0, 0.0]] * 3, [0.0, 0.0], (2, 1))
    optimiser = optax.adam(0.05)
    learner = make_learner(Networks(critic, quantiles, anchored=True), optimiser)
    after = [[[0.0, 3.0, 0.25]], [[0.0, 3.0, 0.25]]]
    made = decision(
        [[0.0]] * 2, after, [[[1, 1]]] * 2, [[1]] * 2, actions=(0, 1), observation=[0, 1, 0.5]
    )
    batch = jax.tree.map(lambda leaf: leaf[None], made)

    @eqx.filter_jit
    def update(learner):
        return update_critic(algorithm, settings, optimiser, learner, batch, GOAL)[0]

    for _ in range(400):
        learner = update(learner)
    seen = jnp.array([0.0, 1.0, 0.5])
    got = action_scores(algorithm, learner.networks, seen, GOAL)
    np.testing.assert_allclose(got, [1.0, 1.0], atol=0.01)
    critic = learner.networks.critic
    assert critic is not None
    np.testing.assert_allclose(critic(algorithm.view(seen, GOAL)), [8.0, 8.0], atol=0.02)


def returns_network():
    """Quantiles of the return at x: (x, x + 4) of action 0, (1, 2) of action 1."""
    network = linear_network([[1.0, 1.0, 0.0, 0.0]], [0.0, 4.0, 1.0, 2.0], (2, 2))
    return Networks(None, network)


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
    algorithm = DQN.make(Mean(), Settings(gamma=0.5))
    made = decision([[2.0, -1.0]], [[[0.0], [-3.0]]], [masks], [terminated])
    got = quantile_targets(algorithm, returns_network(), made, NO_GOAL)
    np.testing.assert_allclose(got, [expected])


def two_opinions():
    """The networks of `returns_network`, and a second one: (x - 3, x + 9) and (1, 2)."""
    other = linear_network([[1.0, 1.0, 0.0, 0.0]], [-3.0, 9.0, 1.0, 2.0], (2, 2))
    first = returns_network().quantiles
    assert isinstance(first, Network)
    return Networks(None, Ensemble((first, other)))


def test_several_networks_act_by_the_mean_of_their_quantiles():
    # At x = 0: ((0, 4) + (-3, 9)) / 2 and (1, 2); the means of these are 2.5 and 1.5.
    algorithm, seen = DQN.make(Mean(), Settings()), jnp.zeros(1)
    networks = two_opinions()
    np.testing.assert_allclose(networks.quantiles(seen), [[-1.5, 6.5], [1.0, 2.0]])
    np.testing.assert_allclose(action_scores(algorithm, networks, seen, NO_GOAL), [2.5, 1.5])


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
    algorithm = ICVaR.make(risk, Settings(gamma=0.5, quantiles=2))
    made = decision([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    got = quantile_targets(algorithm, two_opinions(), made, NO_GOAL)
    np.testing.assert_allclose(got, [expected])


def test_lowest_means_lowest_by_the_risk_measure():
    # Only action 0 is legal. By CVaR at 0.5 the second network is the lower one: 2 + (-3, 9) / 2.
    algorithm = ICVaR.make(CVaR(0.5), Settings(gamma=0.5, quantiles=2))
    made = decision([[2.0]], [[[0.0]]], [[[1, 0]]], [[0]])
    got = quantile_targets(algorithm, two_opinions(), made, NO_GOAL)
    np.testing.assert_allclose(got, [[0.5, 6.5]])


@pytest.mark.parametrize("ensemble", [1, 2])
def test_target_networks_are_asked_once(ensemble):
    # The choice of an action and what follows it need the same quantiles; the compiler does not
    # find that out by itself.
    settings = Settings(ensemble=ensemble, critic="quantiles", quantiles=2, hidden=(4, 4))
    algorithm = DQN.make(Mean(), settings)
    trunk = make_trunk(None, settings.hidden, settings.activation)
    networks = make_networks(jax.random.key(0), settings, trunk, 1, 2, anchored=False)
    made = decision([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    program = jax.make_jaxpr(lambda one: quantile_targets(algorithm, networks, one, NO_GOAL))(made)
    assert str(program).count("= dot_general") == ensemble * 3  # two layers and the head


def test_each_of_several_networks_learns_the_targets_from_a_start_of_its_own():
    # One state, one action, which pays 1 and ends: all networks end up there.
    settings = Settings(ensemble=3, critic="quantiles", quantiles=2, hidden=(4,), kappa=0.01)
    algorithm, optimiser = DQN.make(Mean(), settings), optax.adam(0.02)
    trunk = make_trunk(None, settings.hidden, settings.activation)
    networks = make_networks(jax.random.key(0), settings, trunk, 1, 1, anchored=False)
    assert isinstance(networks.quantiles, Ensemble)
    first = [member.trunk.layers[0].weight for member in networks.quantiles.members]
    assert not np.allclose(first[0], first[1])
    assert not np.allclose(first[1], first[2])
    learner = make_learner(networks, optimiser)
    made = decision([[1.0]], [[[0.5]]], [[[1]]], [[1]], observation=[0.5])
    batch = jax.tree.map(lambda leaf: leaf[None], made)

    @eqx.filter_jit
    def update(learner):
        return update_quantiles(
            algorithm, settings, optimiser, learner, batch, NO_GOAL, jnp.ones(())
        )[0]

    for _ in range(300):
        learner = update(learner)
    learned = learner.networks.quantiles
    assert isinstance(learned, Ensemble)
    np.testing.assert_allclose(learned.each(jnp.array([0.5])), np.ones((3, 1, 2)), atol=0.05)


def test_a_critic_decides_whose_quantiles_follow():
    # The quantiles alone prefer action 0; the critic prefers action 1.
    critic = linear_network([[0.0, 0.0]], [0.0, 1.0], (2,))
    networks = Networks(critic, returns_network().quantiles)
    algorithm = DQN.make(Mean(), Settings(gamma=0.5))
    np.testing.assert_allclose(action_scores(algorithm, networks, jnp.zeros(1), NO_GOAL), [0, 1])
    everything = jnp.ones(2, bool)
    assert best_action(algorithm, networks, jnp.zeros(1), everything, NO_GOAL) == 1
    assert best_action(algorithm, returns_network(), jnp.zeros(1), everything, NO_GOAL) == 0
    made = decision([[2.0]], [[[0.0]]], [[[1, 1]]], [[0]])
    np.testing.assert_allclose(quantile_targets(algorithm, networks, made, NO_GOAL), [[2.5, 3]])


# --- losses -----------------------------------------------------------------------------------


def test_the_loss_splits_errors_into_a_common_part_and_differences():
    # Errors (3, -2, 0) with shares (1/2, 1/4, 1/4): the common part is 1, the rest (2, -3, -1);
    # 1 + 10 * (4/2 + 9/4 + 1/4) = 46.
    loss = critic_loss(
        jnp.array([3.0, 2.0, 5.0]), jnp.array([0.0, 4.0, 5.0]), jnp.array([1.0, 0.5, 0.5]), 10.0
    )
    np.testing.assert_allclose(loss, 46.0)


def test_with_a_weight_of_one_it_is_the_mean_squared_error():
    loss = critic_loss(jnp.array([3.0, 2.0]), jnp.array([0.0, 4.0]), jnp.ones(2), 1.0)
    np.testing.assert_allclose(loss, (9 + 4) / 2)


def test_an_action_without_emphasis_does_not_count():
    loss = critic_loss(jnp.array([3.0, 1e6]), jnp.array([1.0, 0.0]), jnp.array([0.2, 0.0]), 10.0)
    np.testing.assert_allclose(loss, 4.0)


# --- updates ----------------------------------------------------------------------------------

SIZE, ACTIONS, BATCH = 4, 3, 8


def batch():
    """Decisions with two actions and two outcomes; every other one ends."""
    rng = np.random.default_rng(0)
    return Decision(
        jnp.asarray(rng.normal(size=(BATCH, SIZE)), jnp.float32),
        jnp.asarray(rng.integers(0, ACTIONS, size=(BATCH, 2)), jnp.int32),
        jnp.asarray([[1.0, 0.2]] * BATCH),
        jnp.asarray(rng.normal(size=(BATCH, 2, 2)), jnp.float32),
        jnp.asarray(rng.normal(size=(BATCH, 2, 2, SIZE)), jnp.float32),
        jnp.ones((BATCH, 2, 2, ACTIONS), bool),
        jnp.asarray(np.arange(BATCH * 4).reshape(BATCH, 2, 2) % 2 == 0),
        jnp.full((BATCH, 2, 2), 0.99),
    )


def run(settings, count, *, quantiles=False):
    """The learners before and after each of some updates on one batch, and the losses."""
    algorithm = SRM.make(CVaR(0.5), settings)
    networks = make_networks(
        jax.random.key(0),
        settings,
        make_trunk(None, (16, 16), "silu"),
        SIZE,
        ACTIONS,
        anchored=False,
    )
    scale = Scale(jnp.full(SIZE, 0.1), jnp.full(SIZE, 2.0), jnp.array(0.5), jnp.array(3.0))
    optimiser = make_optimiser(settings, count)
    learner = make_learner(with_scale(networks, scale, scale), optimiser)

    @eqx.filter_jit
    def update(learner, decisions):
        if quantiles:
            unit = jnp.array(3.0)
            return update_quantiles(algorithm, settings, optimiser, learner, decisions, GOAL, unit)
        return update_critic(algorithm, settings, optimiser, learner, decisions, GOAL)

    learners, losses = [learner], []
    for _ in range(count):
        learner, loss = update(learner, batch())
        learners.append(learner)
        losses.append(float(loss))
    return learners, losses


def same(one, other, **tolerance):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, **tolerance) for a, b in leaves)


@pytest.mark.parametrize("quantiles", [False, True], ids=["critic", "quantiles"])
def test_updates_on_a_fixed_batch_reduce_its_loss(quantiles):
    settings = Settings(quantiles=5, learning_rate=0.02, target_rate=0.01)
    learners, losses = run(settings, 30, quantiles=quantiles)
    # The quantile loss has a floor: the spread of the targets around their quantiles.
    assert losses[-1] < (0.9 if quantiles else 0.7) * losses[0]
    first, last = learners[0], learners[-1]
    changed, kept = ("quantiles", "critic") if quantiles else ("critic", "quantiles")
    assert not same(getattr(first.networks, changed), getattr(last.networks, changed))
    assert same(getattr(first.networks, kept), getattr(last.networks, kept), rtol=0, atol=0)
    for network in (getattr(last.networks, changed), getattr(last.targets, changed)):
        expected = getattr(first.networks, changed).scale
        assert same(network.scale, expected, rtol=1e-6)  # measured, not learned
    counts = (int(last.critic_updates), int(last.quantile_updates))
    assert counts == ((0, 30) if quantiles else (30, 0))


def test_target_networks_follow_by_a_share_of_the_way():
    settings = Settings(quantiles=5, target_rate=0.25, final_learning_rate=1.0, optimiser="adam")
    (before, after), _ = run(settings, 1)
    expected = jax.tree.map(
        lambda old, new: old + 0.25 * (new - old), before.targets.critic, after.networks.critic
    )
    assert same(after.targets.critic, expected, rtol=1e-5, atol=1e-7)
    assert not same(after.targets.critic, before.targets.critic)


def test_hard_copies_are_made_at_the_interval_and_only_then():
    settings = Settings(
        quantiles=5,
        target_rate=1.0,
        target_interval=2,
        final_learning_rate=1.0,
        optimiser="adam",
    )
    (start, first, second, third), _ = run(settings, 3)
    assert same(first.targets.critic, start.networks.critic, rtol=0, atol=0)
    assert same(second.targets.critic, second.networks.critic, rtol=1e-6, atol=1e-7)
    assert same(third.targets.critic, second.targets.critic, rtol=0, atol=0)
    assert not same(third.networks.critic, second.networks.critic)
