"""Mean reversion by a plain PyTorch loop: the actor and the batch of PG-SRM, as a user writes them.

    .venv-bench/bin/python benchmarks/peers_actor.py --goals 0.519 0.548

A small network for each of the ten steps, batches of mirrored paths, CVaR of the sorted returns,
Adam along a cosine, the schedules of PG-SRM. Prints, as JSON, the seconds of processor until the
value on the 21 trades reaches each goal. The clock starts with the imports; it stands still while
the value is measured, in 400,000 other episodes.
"""

import time

BEGIN = time.process_time()

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402

import torch  # pyright: ignore[reportMissingImports]  # noqa: E402

STEPS, GAMMA, COST, PENALTY, LARGEST = 10, 0.99, 0.005, 0.5, 2.0
DECAY = math.exp(-2.0 * 0.1)
DEVIATION = math.sqrt((1.0 - math.exp(-4.0 * 0.1)) / 4.0)
NOISE = 0.7
"""Width of the noise before rounding, in trades."""


def make_actor(width):
    """A network for each step."""

    def network():
        layers = [torch.nn.Linear(5, width), torch.nn.ReLU(), torch.nn.Linear(width, width)]
        return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(width, 1))

    actor = torch.nn.ModuleList([network() for _ in range(STEPS)])
    for each in actor:
        torch.nn.init.zeros_(each[-1].weight)
    return actor


def simulate(actor, count, rounded, noise=0.0):
    """The returns of so many episodes, in mirrored pairs."""
    price, inventory = torch.ones(count), torch.zeros(count)
    earned, discount = torch.zeros(count), 1.0
    for step, network in enumerate(actor):
        time_passed = torch.full((count,), step / STEPS)
        memory = torch.full((count,), discount)
        inputs = torch.stack([price - 1.0, inventory, time_passed, earned, memory], dim=1)
        trade = LARGEST * torch.tanh(network(inputs)[:, 0])
        if rounded:
            near = trade.detach() * 5.0 + noise * (torch.rand(count) - 0.5)
            trade = (
                trade + (torch.clamp(torch.round(near) / 5.0, -LARGEST, LARGEST) - trade).detach()
            )
        half = torch.randn(count // 2)
        after = 1.0 + (price - 1.0) * DECAY + DEVIATION * torch.cat([half, -half])
        inventory = inventory + trade
        reward = -trade * price - COST * trade**2
        if step == STEPS - 1:
            reward = reward + inventory * after - PENALTY * inventory**2
        earned, discount, price = earned + discount * reward, discount * GAMMA, after
    return earned


def cvar(returns, level):
    """The mean of the worst share."""
    return torch.sort(returns).values[: max(1, round(level * len(returns)))].mean()


def main():
    """Trains until the last goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goals", type=float, nargs="+", required=True)
    parser.add_argument("--level", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--final-batches", type=int, default=4)
    parser.add_argument("--interval", type=int, default=100)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--neutral", type=float, default=0.03)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    actor = make_actor(options.width)
    optimiser = torch.optim.Adam(actor.parameters(), lr=options.rate, betas=(0.9, 0.95))
    warmup = max(1, options.updates // 50)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda n: min((n + 1) / warmup, 0.5 * (1.01 + math.cos(math.pi * n / options.updates))),
    )
    start = time.process_time() - BEGIN
    reached, spread, value, update, measuring = {}, 1.0, float("nan"), 0, 0.0
    for update in range(options.updates):
        neutral = update < options.neutral * options.updates
        batches = options.final_batches if update >= 0.5 * options.updates else 1
        optimiser.zero_grad()
        for _ in range(batches):
            returns = simulate(actor, options.batch, not neutral, NOISE)
            worth = returns.mean() if neutral else cvar(returns, options.level)
            (-worth / (spread * batches)).backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if (update + 1) % options.interval == 0:
            now = time.process_time()
            with torch.no_grad():
                returns = torch.cat([simulate(actor, 50_000, True) for _ in range(8)])
            value, spread = cvar(returns, options.level).item(), returns.std().item()
            for goal in options.goals:
                if value >= goal:
                    reached.setdefault(goal, now - BEGIN - measuring)
            measuring += time.process_time() - now
            if len(reached) == len(options.goals):
                break
    each = (time.process_time() - BEGIN - measuring - start) / (update + 1)
    seconds = [reached.get(goal) for goal in options.goals]
    result = {"start": start, "seconds": seconds, "value": value, "updates": update + 1}
    print(json.dumps({**result, "each": each}))


if __name__ == "__main__":
    main()
