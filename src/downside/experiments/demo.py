"""The best of Downside in minutes: one training, every measure, and what caution costs.

Trains one dial, for less long than its defaults do; turns it to the measures of the paper's table;
and writes a page whose slider goes from the mean to the worst 20%. What is trained is kept: the
same command trains nothing again.
"""

from collections.abc import Mapping
from typing import Any

from downside._files import DamagedFileError
from downside.evaluation import evaluate
from downside.exact import solve
from downside.experiments._experiment import EPISODES, QUICK_SHARE
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, optimum
from downside.runs import evaluation_seed
from downside.train import PGSRM, load
from downside.train.checkpoints.checkpoint import CheckpointError

SETTINGS: Mapping[str, Any] = {"updates": 1000, "batch_size": 2048}
"""A twelfth of the episodes of a dial with the defaults."""
_QUICK: Mapping[str, Any] = {
    "updates": 4,
    "batch_size": 32,
    "hidden_sizes": (8,),
    "outer_interval": 2,
    "outer_episodes": 108,
}
START, END, POINTS = "mean", "cvar(0.2)", 5
MEASURES = {
    "mean": "cvar(1.0)",
    "0.5*mean + 0.5*cvar(0.2)": "0.5*cvar(0.2)+0.5*cvar(1.0)",
    "cvar(0.5)": "cvar(0.5)",
    "cvar(0.2)": "cvar(0.2)",
}
"""The measures of the table, with their names in the paper's."""


def main(options: Options) -> bool:
    """Trains, compares, writes the page; returns whether the dial beats the paper's agents."""
    console = terminal()
    seed = options.seeds_or((0,))[0]
    dial, seconds = _trained(options, seed)
    updates = f"{dial.settings.updates:,} updates of {dial.settings.batch_size:,} episodes"
    console.print(f"One dial: {updates}, {seconds:.0f} seconds. Now it is turned.")

    paper, rows, better = paper_table("mean_reversion").figures, [], True
    solved = options.folder / "mean-reversion-optimum.csv"
    known = optimum(solved) if solved.exists() else {}
    episodes = EPISODES // QUICK_SHARE if options.quick else EPISODES
    for risk, name in MEASURES.items():
        result = evaluate(dial.at(risk), episodes=episodes, seed=evaluation_seed(seed))
        value, error = result.value(risk), result.standard_error(risk)
        best = known[name] if name in known else _solved(risk)
        published = paper[f"QR-SRM {name}", name].mean
        better &= value > published
        figures = (f"{published:.3f}", f"{value:.3f} ± {error:.3f}", f"{best:.3f}")
        rows.append((risk, *figures, f"{value / best:.0%}" if value > 0 else "-"))
    header = ("measure", "the paper", "this dial", "optimum", "share")
    show(console, f"Mean-reversion trading, {episodes:,} fresh episodes", header, rows)
    console.print(
        "The paper trains a QR-SRM agent for each measure. The optimum is the exact\n"
        "planner's (downside reproduce optimum). With the defaults, twelve times the\n"
        "episodes, a dial gets within 0.015 of it.\n"
    )

    curve = dial.frontier(start=START, end=END, points=POINTS, episodes=episodes // 5, exact=False)
    points = [
        (str(point.risk), str(point.by_start), str(point.by_end), curve.note(point))
        for point in curve.points
    ]
    show(console, "What caution costs", ("turned to", "mean", "worst 20%", ""), points)
    dial.save(_path(options, seed))  # with the targets that were found
    folder = options.storage("demo")
    page = curve.report(
        folder / "caution.html",
        title="What caution costs: mean-reversion trading",
        explained_episodes=1,
        checks=0 if options.quick else 50,
    )
    console.print("The page has a slider from the mean to the worst 20%. Open it in a browser:")
    console.print(str(page.resolve()), markup=False, soft_wrap=True)
    return better or options.quick


def _solved(risk: str) -> float:
    """The optimum, where nobody has computed it: tens of seconds."""
    return solve(ENVIRONMENT, risk, gamma=GAMMA, episodes=1_000).value


def _path(options: Options, seed: int) -> Any:
    quick = "quick-" if options.quick else ""
    return options.storage("demo") / f"{quick}dial-{seed}.safetensors"


def _trained(options: Options, seed: int) -> tuple[Any, float]:
    """The dial, and the seconds that its training took; read if it was trained before."""
    path = _path(options, seed)
    settings = _QUICK if options.quick else SETTINGS
    if path.exists():
        try:
            dial = load(path)
            if all(getattr(dial.settings, name) == each for name, each in settings.items()):
                return dial, dial.history[-1]["seconds"]
        except (CheckpointError, DamagedFileError):
            pass  # it is trained again
    dial = PGSRM(ENVIRONMENT, risk="dial", seed=seed, gamma=GAMMA, **settings)
    terminal().print(f"Training {dial.name} on {ENVIRONMENT}, for all measures at once")
    dial.learn(progress_bar=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    dial.save(path)
    return dial, dial.history[-1]["seconds"]
