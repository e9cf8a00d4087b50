# pyright: reportMissingImports=false
"""How long one training update takes in PyTorch and in stable-baselines3-contrib.

    .venv-bench/bin/python benchmarks/peers.py --peer torch-cvar --quantiles 50 --threads 2 --json

`torch-cvar` and `torch-dense` are QR-SRM's update as a user would write it in eager PyTorch
straight from Algorithm 2, given a batch; `sb3` is the risk-neutral update of sb3-contrib's QRDQN,
which also draws its batch from the replay memory. PyTorch is needed for this comparison only, so it
lives in an environment of its own and Downside is not imported here.
"""

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import QRDQN
from torch import nn

BATCH, ACTIONS, OBSERVATIONS, PERIODS = 256, 21, 3, 10
HIDDEN = [128, 128, 128]
LEARNING_RATE, GAMMA, KAPPA = 2.5e-4, 0.99, 1.0
STORED = 3_000
"""Random transitions in the replay memory of `sb3`."""
STEPS = 5
"""Gradient steps in one timed call of `sb3`, which spreads the cost of the call."""


def transitions() -> tuple[torch.Tensor, ...]:
    """A batch (x, s, c, a, r, x', ended) with the sizes of mean-reversion trading."""
    period = torch.randint(PERIODS, (BATCH,))

    def observe(period: torch.Tensor) -> torch.Tensor:
        price, inventory = 1.0 + 0.5 * torch.randn(BATCH), 2.0 * torch.randn(BATCH)
        return torch.stack([price, inventory, period / PERIODS], dim=-1)

    x, next_x = observe(period), observe(period + 1)
    s, c = torch.randn(BATCH), GAMMA**period
    a, r = torch.randint(ACTIONS, (BATCH,)), torch.randn(BATCH)
    return x, s, c, a, r, next_x, period == PERIODS - 1


def quantile_network(count: int) -> nn.Sequential:
    """From (x, s, c) to `count` quantiles of the return of each action."""
    layers: list[object] = []
    width = OBSERVATIONS + 2
    for hidden in HIDDEN:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    layers += [nn.Linear(width, ACTIONS * count), nn.Unflatten(-1, (ACTIONS, count))]
    return nn.Sequential(*layers)


def significance(peer: str, count: int) -> torch.Tensor:
    """Algorithm 2's mu_i = phi(tau_{i-1}) - phi(tau_i), for CVaR(0.5) or for exponential(4)."""
    if peer == "torch-cvar":
        mu = torch.zeros(count)
        mu[math.floor(0.5 * count)] = 1 / 0.5
        return mu
    phi = 4.0 * torch.exp(-4.0 * torch.arange(count + 1) / count) / (1.0 - math.exp(-4.0))
    return phi[:-1] - phi[1:]


def torch_update(peer: str, count: int) -> Callable[[tuple[torch.Tensor, ...]], None]:
    """Algorithm 2 and an Adam step, with the target network that QR-DQN bootstraps from."""
    network = quantile_network(count)
    target_network = copy.deepcopy(network)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    mu, start = significance(peer, count), torch.sort(torch.randn(count)).values
    tau_hat = (torch.arange(count) + 0.5) / count
    rows = torch.arange(BATCH)

    def update(batch: tuple[torch.Tensor, ...]) -> None:
        x, s, c, a, r, next_x, ended = batch
        with torch.no_grad():
            next_s, next_c = s + c * r, GAMMA * c
            theta = target_network(torch.cat([next_x, next_s[:, None], next_c[:, None]], dim=-1))
            z = next_s[:, None, None] + next_c[:, None, None] * theta
            # Batch, action, quantile j, knot i.
            falls = mu * torch.clamp(z[..., None] - start, max=0.0)
            best = (falls.sum(dim=(-2, -1)) / count).argmax(dim=-1)
            future = torch.where(ended[:, None], 0.0, theta[rows, best])
            targets = r[:, None] + GAMMA * future
        quantiles = network(torch.cat([x, s[:, None], c[:, None]], dim=-1))[rows, a]
        delta = targets[:, None, :] - quantiles[:, :, None]  # batch, quantile i, target j
        size = delta.abs()
        huber = torch.where(size <= KAPPA, 0.5 * delta**2, KAPPA * (size - 0.5 * KAPPA))
        weight = (tau_hat[:, None] - (delta.detach() < 0).float()).abs()
        loss = (weight * huber / KAPPA).mean(dim=2).sum(dim=1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return update


class Noise(gym.Env):
    """An environment with the shapes of mean-reversion trading, and nothing to learn."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBSERVATIONS,), np.float32)
    action_space = gym.spaces.Discrete(ACTIONS)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Starts an episode."""
        super().reset(seed=seed, options=options)
        self.period = 0
        return self._observe(), {}

    def step(self, action):
        """Ends the episode after `PERIODS` steps, whatever `action` is."""
        del action
        self.period += 1
        reward = float(self.np_random.normal())
        return self._observe(), reward, self.period == PERIODS, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.normal(size=OBSERVATIONS).astype(np.float32)


def sb3_model(count: int) -> QRDQN:
    """QRDQN with a replay memory of random steps and no update made yet."""
    model = QRDQN(
        "MlpPolicy",
        Noise(),
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        batch_size=BATCH,
        buffer_size=STORED,
        learning_starts=STORED,
        policy_kwargs={"net_arch": HIDDEN, "n_quantiles": count},
        device="cpu",
        seed=0,
    )
    return model.learn(total_timesteps=STORED)


def measure(peer: str, count: int, repeats: int, warm_up: int = 3) -> list[float]:
    """Seconds per update, `repeats` times after a warm-up."""
    if peer == "sb3":
        model = sb3_model(count)
        timed = [lambda: model.train(gradient_steps=STEPS, batch_size=BATCH)] * (warm_up + repeats)
        steps = STEPS
    else:
        update = torch_update(peer, count)
        batches = [transitions() for _ in range(warm_up + repeats)]
        timed = [lambda batch=batch: update(batch) for batch in batches]
        steps = 1
    seconds = []
    for call in timed:
        begin = time.perf_counter()
        call()
        seconds.append((time.perf_counter() - begin) / steps)
    return seconds[warm_up:]


def main() -> None:
    """Prints the median and the shortest time of an update."""
    parser = argparse.ArgumentParser(description="Time one training update of a peer.")
    parser.add_argument("--peer", choices=["torch-cvar", "torch-dense", "sb3"], required=True)
    parser.add_argument("--quantiles", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    asked = parser.parse_args()

    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    seconds = measure(asked.peer, asked.quantiles, asked.repeats)
    median, shortest = statistics.median(seconds), min(seconds)
    if asked.json:
        setting = {name: getattr(asked, name) for name in ("peer", "quantiles", "threads")}
        setting |= {"repeats": asked.repeats, "torch": torch.__version__}
        print(json.dumps(setting | {"median": median, "minimum": shortest}))
    else:
        print(
            f"{asked.peer}, N = {asked.quantiles}, {asked.threads} threads: "
            f"{1e3 * median:.1f} ms an update (shortest {1e3 * shortest:.1f} ms)"
        )


if __name__ == "__main__":
    main()
