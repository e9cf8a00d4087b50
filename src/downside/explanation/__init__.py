"""The evolving risk preference: what a policy is optimising at every step, in numbers and words.

The package is called `explanation` because `downside.explain` is the function.
"""

from downside.explanation.calibration import Calibration
from downside.explanation.story import Episode, Step, Story
from downside.explanation.tell import explain

__all__ = ["Calibration", "Episode", "Step", "Story", "explain"]
