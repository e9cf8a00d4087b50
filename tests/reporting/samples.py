"""Small report sections for the tests of the page, made without training."""

import dataclasses

import downside as ds
from downside.explanation import Episode
from downside.reporting import make_section

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</script><script>document.title='owned'</script>",
    "\u202eright-to-left \u05e9\u05dc\u05d5\u05dd",
    "emoji \U0001f4a5 & 'quotes' \"too\" {{ 7 * 7 }} ${7*7}",
)


def walk_mdp(horizon=6):
    """A step up or down each time, with a safe action that pays little."""
    return ds.FiniteMDP(
        [[[0.5, 0.5], [0.6, 0.4]], [[0.4, 0.6], [0.3, 0.7]]],
        [[[3.0, -2.0], [0.6, 0.1]], [[1.0, -1.0], [0.2, -0.1]]],
        gamma=0.95,
        horizon=horizon,
    )


def plan(risk="cvar(0.3)", horizon=6):
    return ds.solve(walk_mdp(horizon), risk, episodes=50)


def section(risk="cvar(0.3)", label="a plan", **arguments):
    given = {"episodes": 2000, "explained_episodes": 2, "checks": 40, **arguments}
    return make_section(plan(risk), label=label, **given)


def relabelled(section, label):
    """The same section by another name."""
    return dataclasses.replace(section, label=label, about=label)


def long_section(section, num_steps, label):
    """The same with an episode of so many steps."""
    *steps, last = section.explanation.steps
    many = [steps[time % len(steps)] for time in range(num_steps)] + [last]
    many = tuple(dataclasses.replace(step, time=time) for time, step in enumerate(many))
    episodes = (Episode(seed=0, steps=many),)
    explanation = dataclasses.replace(section.explanation, episodes=episodes)
    return dataclasses.replace(section, label=label, explanation=explanation)
