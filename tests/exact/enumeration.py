"""Small random problems, and their answers by listing everything that can happen."""

import itertools

import numpy as np
from hypothesis import strategies as st

from downside.exact.mdp import FiniteMDP
from downside.exact.problem import Solution


@st.composite
def mdps(draw, *, most_states=4, most_outcomes=2, horizons=(1, 2, 3, 4), rewards=None, gammas=None):
    """Problems with two actions, of up to four states; now and then with a terminal state."""
    states = draw(st.integers(2, most_states))
    outcomes = draw(st.integers(1, most_outcomes))
    shape = (states, 2, outcomes)
    size = int(np.prod(shape))
    reward = st.integers(-3, 3) if rewards is None else rewards
    shares = draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    weights = np.array(shares, dtype=float).reshape(shape)
    leads = draw(st.lists(st.integers(0, states - 1), min_size=size, max_size=size))
    pays = draw(st.lists(reward, min_size=size, max_size=size))
    terminal = np.zeros(states, dtype=bool)
    terminal[-1] = draw(st.booleans())
    return FiniteMDP(
        weights / weights.sum(axis=2, keepdims=True),
        np.array(pays, dtype=float).reshape(shape),
        terminal,
        next_states=np.array(leads).reshape(shape),
        gamma=draw(st.sampled_from([1.0, 0.5, 0.9] if gammas is None else gammas)),
        horizon=draw(st.sampled_from(horizons)),
    )


def all_returns(mdp):
    """(values, probabilities), each [policies, outcomes]: what every policy can achieve.

    A deterministic policy may choose anew after every history, so what it does after one outcome
    has nothing to do with what it does after another: all combinations count.
    """
    known = {}

    def combine(options):
        """Draw option i with probability p_i, then any of its distributions, for each i."""
        sizes = [range(len(values)) for _, values, _ in options]
        choice = np.array(list(itertools.product(*sizes))).reshape(-1, len(options))
        values = [values[choice[:, i]] for i, (_, values, _) in enumerate(options)]
        shares = [p * share[choice[:, i]] for i, (p, _, share) in enumerate(options)]
        return np.concatenate(values, axis=1), np.concatenate(shares, axis=1)

    def to_come(state, time):
        if time == mdp.horizon or mdp.terminal[state]:
            return np.zeros((1, 1)), np.ones((1, 1))
        if (state, time) not in known:
            by_action = []
            for action in np.flatnonzero(mdp.action_mask[state]):
                options = []
                for p, leads, reward, over in zip(
                    mdp.probabilities[state, action],
                    mdp.next_states[state, action],
                    mdp.rewards[state, action],
                    mdp.ends[state, action],
                    strict=True,
                ):
                    if p > 0:
                        values, shares = to_come(leads, time + 1)
                        if over:
                            values, shares = np.zeros((1, 1)), np.ones((1, 1))
                        options.append((p, reward + mdp.gamma * values, shares))
                by_action.append(combine(options))
            width = max(values.shape[1] for values, _ in by_action)
            known[state, time] = tuple(
                np.concatenate(
                    [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
                )
                for parts in zip(*by_action, strict=True)
            )
        return known[state, time]

    return combine([(mdp.start[x], *to_come(x, 0)) for x in np.flatnonzero(mdp.start)])


def all_paths(mdp, policy):
    """(probability, [(state, accumulated reward) at each time], return) of every path."""
    paths = []

    def follow(time, state, earned, chance, over, visited):
        visited = [*visited, (state, earned)]
        if over or time == mdp.horizon or mdp.terminal[state]:
            paths.append((chance, visited, earned))
            return
        action = policy(time, state, earned)
        for p, leads, reward, ends in zip(
            mdp.probabilities[state, action],
            mdp.next_states[state, action],
            mdp.rewards[state, action],
            mdp.ends[state, action],
            strict=True,
        ):
            if p > 0:
                later = earned + mdp.gamma**time * reward
                follow(time + 1, int(leads), later, chance * p, bool(ends), visited)

    for state in np.flatnonzero(mdp.start):
        follow(0, int(state), 0.0, float(mdp.start[state]), False, [])
    return paths


def returns_of(mdp, policy):
    """{return: probability} of a policy, path by path."""
    chances = {}
    for chance, _, value in all_paths(mdp, policy):
        chances[round(value, 9)] = chances.get(round(value, 9), 0.0) + chance
    return chances


def best_over_knots(problem, risk):
    """The optimum of a sum of k CVaRs as a maximum over all k-tuples of attainable returns.

    For a fixed policy E[h(G)] is concave in each knot, and highest at a quantile of its return.
    """
    below = [level for level, _ in risk.atoms if level < 1.0]
    best = Solution(-np.inf, None)
    # A larger level has the larger quantile, so the knots can be taken in increasing order.
    for knots in itertools.combinations_with_replacement(problem.attainable_returns, len(below)):
        best = max(best, problem.solve(risk.utility_at(np.array(knots))), key=lambda one: one.value)
    return best
