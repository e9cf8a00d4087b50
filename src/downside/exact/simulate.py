"""Running a policy on fresh noise: the honest value of a plan."""

from downside.envs.rollout import AugmentedPolicy, simulate

__all__ = ["AugmentedPolicy", "simulate"]
