"""The evolving risk preference: what a policy is optimising at every step, in numbers and words.

The package is called `explanation` because `downside.explain` is the function.
"""

from downside.explanation.calibration import Calibration
from downside.explanation.explain import explain
from downside.explanation.results import Episode, ExplainedStep, Explanation

__all__ = ["Calibration", "Episode", "ExplainedStep", "Explanation", "explain"]
