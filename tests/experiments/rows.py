"""Rows of results, made up."""


def a_row(algorithm, objective, seed, measure, value):
    """What an agent is worth by a measure."""
    return {
        "algorithm": algorithm,
        "objective": objective,
        "seed": seed,
        "measure": measure,
        "value": value,
        "standard_error": 0.01,
        "predicted": 0.0,
        "seconds": 1.0,
    }
