"""E[ξ | F_t] by listing every path that a policy can take."""

import numpy as np


def dual(paths, alpha):
    """ξ^α of every path: 1/α below the α-quantile, 0 above it, and what is left over at it."""
    chances = np.array([chance for chance, _, _ in paths])
    returns = np.round([value for _, _, value in paths], 9)
    order = np.unique(returns)
    below = 0.0
    for value in order:
        at = chances[returns == value].sum()
        if below + at >= alpha - 1e-12:
            share = (alpha - below) / (alpha * at)
            return np.where(returns < value, 1 / alpha, np.where(returns == value, share, 0.0))
        below += at
    return np.full(len(paths), 1.0)


def conditional(paths, xi, time, prefix):
    """The mean of ξ over the paths whose first `time` + 1 points are `prefix`."""
    inside = [i for i, (_, visited, _) in enumerate(paths) if _starts(visited, prefix[: time + 1])]
    chances = np.array([paths[i][0] for i in inside])
    return float(np.sum(chances * xi[inside]) / chances.sum())


def _starts(visited, prefix):
    return len(visited) >= len(prefix) and all(
        state == other and abs(s - r) < 1e-9
        for (state, s), (other, r) in zip(visited, prefix, strict=False)
    )
