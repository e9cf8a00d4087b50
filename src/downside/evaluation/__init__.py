"""Returns of policies, their values with confidence intervals, and comparisons."""

from downside.evaluation.comparison import Difference, compare
from downside.evaluation.episodes import Evaluation, Interval, Simulated, evaluate
from downside.evaluation.policies import evaluate_policy
from downside.evaluation.replays import Frame, Replay, can_be_shown, chosen_replays, film, frames

__all__ = [
    "Difference",
    "Evaluation",
    "Frame",
    "Interval",
    "Replay",
    "Simulated",
    "can_be_shown",
    "chosen_replays",
    "compare",
    "evaluate",
    "evaluate_policy",
    "film",
    "frames",
]
