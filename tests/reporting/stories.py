"""Small chapters for the tests of the page, made without training."""

import numpy as np

import downside as ds
from downside.explanation import Episode, Story
from downside.reporting import Chapter, make_chapter

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


def chapter(risk="cvar(0.3)", label="a plan", **arguments):
    given = {"episodes": 2000, "told": 2, "checks": 40, **arguments}
    return make_chapter(plan(risk), label=label, **given)


def relabelled(one, label):
    """The same chapter by another name."""
    return Chapter(
        label=label, story=one.story, evaluation=one.evaluation, about=label, optimum=one.optimum
    )


def long_chapter(one, steps, label):
    """The same with an episode of so many steps."""
    told = one.story.episodes[0].steps
    many = [told[i % (len(told) - 1)] for i in range(steps)]
    many = [_at(step, time) for time, step in enumerate(many)]
    episode = Episode(seed=0, steps=(*many, _at(told[-1], steps)))
    fields = {name: getattr(one.story, name) for name in Story.__dataclass_fields__}
    story = Story(**{**fields, "episodes": (episode,)})
    return Chapter(label=label, story=story, evaluation=one.evaluation, optimum=one.optimum)


def _at(step, time):
    import dataclasses

    return dataclasses.replace(step, time=time)


def returns(seed=0, count=2000):
    return np.random.default_rng(seed).normal(size=count)
