"""Returns of policies, what they are worth with confidence intervals, and comparisons of them."""

from downside.evaluation.comparison import Difference, compare
from downside.evaluation.episodes import Evaluation, Interval, Simulated, evaluate
from downside.evaluation.policies import evaluate_policy

__all__ = [
    "Difference",
    "Evaluation",
    "Interval",
    "Simulated",
    "compare",
    "evaluate",
    "evaluate_policy",
]
