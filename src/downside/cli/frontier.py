"""`downside frontier`: agents between two risk measures, in one folder with a page."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from downside.cli._common import (
    STEPS,
    agent_class,
    as_parameters,
    changed_settings,
    print_json,
    print_next,
)

if TYPE_CHECKING:
    from pathlib import Path

    from downside.studies.frontiers import Frontier as Curve


@dataclasses.dataclass(frozen=True)
class Frontier:
    """Train agents for the mixtures of two risk measures, and show what more of one costs in the
    other. The same command resumes."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """The environment's id, e.g. downside/MeanReversion-v0."""
    start: str = "mean"
    """The measure at one end."""
    end: str = "cvar(0.1)"
    """The measure at the other end."""
    points: int = 9
    """How many mixtures, both ends included."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each mixture has an agent for each seed."""
    agent: str | None = None
    """The algorithm; it must take mixtures, as qrsrm (the default), pgsrm and qricvar do."""
    dial: bool = False
    """One training for all mixtures instead of one for each: a dial; pgsrm by default, acsrm in any
    Gymnasium environment."""
    preset: str = "default"
    """The settings: default or paper."""
    steps: Annotated[int | None, STEPS] = None
    """About so many environment steps of each agent, in whole outer steps; by default the
    preset's."""
    params: tuple[str, ...] = ()
    """Parameters of the environment, as name=value, e.g. sigma=0.5."""
    episodes: int | None = None
    """Fresh episodes that each agent is evaluated in."""
    exact: bool = True
    """Compute the exact frontier too, where the planner can."""
    engine: str | None = None
    """threads, an agent to a core, or vmap, all in one batch; by default what suits the machine."""
    together: int | None = None
    """How many agents at a time."""
    explained_episodes: int = 2
    """Episodes of each point that the page explains step by step."""
    checks: int = 300
    """Episodes that check the explanation of each point."""
    out: str | None = None
    """The folder; by default one under runs/."""
    open: bool = False
    """Open the page in a browser."""
    json: bool = False
    """Print JSON, for other programs."""

    changes: ClassVar[tuple[str, ...]] = ()
    """Names of further fields that are settings; see `downside.cli.settings`."""

    def run(self) -> None:
        """Trains the missing agents, evaluates them, and writes the folder."""
        from pathlib import Path

        import downside as ds
        from downside._locks import lock
        from downside.studies.frontiers.storage import frontier_folder, write_folder

        name = self.agent or ("pgsrm" if self.dial else "qrsrm")
        kind, settings = agent_class(name), changed_settings(self)
        folder_name = f"{name}-dial" if self.dial else name
        folder = Path(self.out or frontier_folder(self.env, folder_name, self.start, self.end))
        try:
            with lock(folder):
                curve = ds.frontier(
                    self.env,
                    start=self.start,
                    end=self.end,
                    points=self.points,
                    seeds=self.seeds,
                    agent=kind,
                    dial=self.dial,
                    preset=self.preset,
                    total_timesteps=self.steps,
                    episodes=self.episodes,
                    env_kwargs=as_parameters(self.params),
                    exact=None if self.exact else False,
                    folder=folder,
                    engine=self.engine,
                    together=self.together,
                    progress_bar=not self.json,
                    **settings,
                )
                page = write_folder(
                    curve, folder, explained_episodes=self.explained_episodes, checks=self.checks
                )
        except KeyboardInterrupt as interruption:
            message = f"stopped; finished agents are in {folder}. The same command resumes."
            raise type(interruption)(message) from None
        if self.json:
            print_json({**curve.summary(), "folder": str(folder), "page": str(page)})
        else:
            _show(curve, page)
        if self.open:
            import webbrowser

            webbrowser.open(page.resolve().as_uri())


def _show(curve: "Curve", page: "Path") -> None:
    from rich.console import Console

    from downside.studies.frontiers.page import cards

    console = Console(highlight=False)
    console.width = max(console.width, 100)
    console.print(curve.table())
    for card in cards(curve):
        console.print(f"{card['name']}: {card['value']} ({card['more']})", markup=False)
    console.print(f"Page: {page}", markup=False, soft_wrap=True)
    print_next("open the page in a browser (--open does)")
