"""Run an exported policy with NumPy and onnxruntime alone: neither JAX nor Downside is needed.

    python -c "import downside as ds; ds.load('policy').export('policy.onnx')"
    python examples/deployed_policy.py policy.onnx

Copy the class into your program. It keeps what the policy wants to know of the episode: s, what was
earned so far, discounted; c, the discount of the next reward; and the last steps, if it sees them.
"""

import json
import sys
from typing import Any

import numpy as np
import onnxruntime


class DeployedPolicy:
    """A policy from a file, for one episode after the other."""

    def __init__(self, path: str):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the networks are small
        options.log_severity_level = 3  # no warnings of inputs that may be left out
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.about = json.loads(metadata["downside"])
        sizes = {node.name: node.shape for node in self.session.get_inputs()}
        self.past_size = sizes["past"][1] if "past" in sizes else 0
        self.reset()

    def reset(self) -> None:
        """Before an episode: nothing earned, nothing discounted, no steps."""
        self.s, self.c = 0.0, 1.0
        self.past = np.zeros(self.past_size, np.float32)
        self.last: tuple[np.ndarray, Any] | None = None

    def act(self, observation: Any, mask: Any = None) -> Any:
        """The action for an observation; `mask` says which actions are legal."""
        now = np.asarray(observation, np.float32).ravel()
        if self.past_size and self.last is not None:
            self.past = self._past_after(now)
        inputs = {
            "observation": now[None],
            "s": np.array([self.s], np.float32),
            "c": np.array([self.c], np.float32),
        }
        if self.past_size:
            inputs["past"] = self.past[None]
        if mask is not None:
            inputs["mask"] = np.asarray(mask, bool)[None]
        actions: Any = self.session.run(["action"], inputs)[0]
        action = actions[0]
        self.last = now, action
        return action

    def observe(self, reward: float) -> None:
        """After each step: what it paid."""
        self.s += self.c * float(reward)
        self.c *= self.about["gamma"]

    def _past_after(self, now: np.ndarray) -> np.ndarray:
        """The last steps, the latest first: how the observation changed, and the action."""
        assert self.last is not None
        before, action = self.last
        if self.about["num_actions"]:
            chosen = np.arange(self.about["num_actions"]) == action - self.about["first_action"]
        else:
            chosen = np.ravel(action)
        step = np.concatenate([now - before, chosen]).astype(np.float32)
        return np.concatenate([step, self.past])[: self.past_size]


def main() -> None:
    """What the file says, and how long a decision takes."""
    import time

    policy = DeployedPolicy(sys.argv[1])
    print(json.dumps(policy.about, indent=2))
    observation = np.zeros(policy.about["observation_size"], np.float32)
    policy.act(observation)
    begin = time.perf_counter()
    for _ in range(1000):
        policy.act(observation)
    print(f"{(time.perf_counter() - begin) * 1e3:.1f} microseconds for a decision")


if __name__ == "__main__":
    main()
