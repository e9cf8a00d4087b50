"""One line of advice, where a problem has come through a door that is not its best."""

import warnings

import numpy as np
from jaxtyping import Float

_SHORT, _CHEAP, _LONG_RUN = 100, 200e-6, 20_000
"""Steps of an episode up to which it is short, seconds of a step up to which it is cheap, and steps
of a run from which advice is worth a line."""
_GIVEN: set[str] = set()
"""The environments that advice was given on: once is enough."""


class AdviceWarning(UserWarning):
    """Another way would do better. Nothing is wrong."""


def advise(
    name: str, lengths: Float[np.ndarray, " n"], seconds_per_step: float, timesteps: int
) -> bool:
    """Warns once if an environment that is lived through could be simulated instead.

    Arguments:
        name: of the environment.
        lengths: steps of some of its episodes.
        seconds_per_step: what a step of one environment takes.
        timesteps: of the run.

    Returns:
        Whether it warned.
    """
    length = float(np.mean(lengths)) if len(lengths) else np.inf
    if length > _SHORT or seconds_per_step > _CHEAP or timesteps < _LONG_RUN or name in _GIVEN:
        return False
    _GIVEN.add(name)
    warnings.warn(
        f"{name} is cheap and its episodes are short (about {length:.0f} steps of "
        f"{1e6 * seconds_per_step:.0f} µs). As a function of state, action and noise in NumPy, "
        "passed as ds.Simulator(...), it would be learned much closer to the optimum in the same "
        "time: see 'Which door?' in the documentation.",
        AdviceWarning,
        stacklevel=2,
    )
    return True
