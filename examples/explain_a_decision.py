"""Explain one decision.

    python examples/explain_a_decision.py            # half a minute
    python examples/explain_a_decision.py --full     # more episodes for the checks

An agent cares about the worse half of all episodes. In the middle of one, after gains or losses,
what does it care about from here on? Theorem 2 of the paper says it in numbers, and
`ds.explain` in words. Here the policy is the exact plan of a small machine-replacement problem.
"""

import sys

import downside as ds
from downside.envs import MachineReplacement

RISK = "0.3*mean + 0.7*cvar(0.2)"


def main(full: bool = False):
    """Plays an episode, prints the words of its steps, and draws the explanation."""
    plan = ds.solve(MachineReplacement(horizon=8), RISK, gamma=1.0, episodes=5_000)
    explanation = ds.explain(plan, episode_seed=2, checks=1_000 if full else 200)
    for step in explanation.steps:
        print(f"{step.time:>2}  {step.words}\n")
    assert explanation.calibration is not None
    print(explanation.calibration.words)
    return explanation.plot()


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("explain_a_decision.png")
