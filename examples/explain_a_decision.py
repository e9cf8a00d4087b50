"""Explain one decision.

    python examples/explain_a_decision.py            # seconds
    python examples/explain_a_decision.py --full     # more episodes for the checks

A gambler cares half about the average and half about the worse half of all evenings. After a win or
a loss, what is left to care about? Theorem 2 of the paper says it in numbers, `ds.explain` in
words. The policy is the exact plan of the betting game.
"""

import sys
import textwrap

import downside as ds
from downside.envs import BettingGame

RISK = "0.5*mean + 0.5*cvar(0.5)"


def main(full: bool = False):
    """Plays an episode, prints the words of its steps, and draws the explanation."""
    plan = ds.solve(BettingGame(), RISK, gamma=1.0, episodes=5_000)
    explanation = ds.explain(plan, episode_seed=2, checks=1_000 if full else 100)
    for step in explanation.steps:
        print(textwrap.fill(f"{step.time}  {step.words}", 96, subsequent_indent="   "), end="\n\n")
    assert explanation.calibration is not None
    print(textwrap.fill(explanation.calibration.words, 96))
    return explanation.plot()


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("explain_a_decision.png")
