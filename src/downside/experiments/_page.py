"""`docs/evidence/reproduction.md`, written from `results/`: every number beside the paper's."""

import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import StrictUndefined, Template

from downside.experiments import (
    _md,
    actors,
    actors_checks,
    actors_planned,
    example1,
    example2,
    example3,
    hedging,
    put,
    quantiles,
    spectra,
)
from downside.experiments._agreement import agreement
from downside.experiments._claims import CLAIMS, judge
from downside.experiments._cost import SCORINGS
from downside.experiments._lander import beside_sb3, what_caution_does
from downside.experiments._options import Options
from downside.experiments._paper import PaperTable, example3_levels, paper_table
from downside.experiments._results import Results, seconds
from downside.experiments._rows import read_about, read_rows, select

PRESETS = ("default", "paper")
EXPERIMENTS = {
    "put": "figure 2",
    "mean-reversion": "table 2",
    "spectra": "figure 3",
    "quantiles": "appendix I",
    "lunar": "table 3",
}
"""Where the paper has each of them."""
_OURS = ("preset default", "of the optimum", "preset paper", "of the optimum")


class Page:
    """The text of the page, with links to figures and data."""

    def __init__(self, folder: Path, path: Path):
        self.results, self.folder, self.path = Results(folder), folder, path

    def text(self) -> str:
        """All of it."""
        prose = importlib.resources.files("downside.experiments") / "reproduction.md.j2"
        docs = self._relative(Path("docs")) + "/"
        template = Template(
            prose.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True
        )
        text = template.render(
            docs=docs,
            made={experiment: self._made(experiment) for experiment in EXPERIMENTS},
            claims=self._claims(hoped=False),
            hopes=self._claims(hoped=True),
            examples=self._examples(),
            example3=self._example3(),
            put=self._put(),
            trading=self._trading(),
            spectra=self._spectra(),
            quantiles=self._quantiles(),
            cost=self._cost(),
            lander=self._lander(),
            actors=self._actors(),
            hedging=self._hedging(),
            runs=self._runs(),
        )
        return re.sub(r"\n{3,}", "\n\n", text)

    # --- parts --------------------------------------------------------------------------------

    def _claims(self, *, hoped: bool) -> str:
        lines = []
        for claim in (claim for claim in CLAIMS if claim.hoped == hoped):
            judged = [judge(claim, self.results, preset) for preset in PRESETS]
            lines.append([_md.escaped(claim.says), *(_md.verdict(claim, j) for j in judged)])
        header = ("one would hope" if hoped else "it says", "preset default", "preset paper")
        return _md.table(header, lines)

    def _examples(self) -> str:
        parts = []
        for number, example in ((1, example1), (2, example2)):
            lines = [[name, paper, ours] for name, paper, ours, _ in example.comparison().rows]
            header = (f"example {number} (`downside reproduce example{number}`)", "paper", "ours")
            parts.append(_md.table(header, lines))
        return "\n".join(parts)

    def _example3(self) -> str:
        paper = [f"{level:.3f}" for level in example3_levels()]
        header = ("step", *map(str, range(len(paper))))
        parts = [_md.table(header, [["α in the paper's episode, of its agent", *paper]])]
        for preset in PRESETS:
            path, command = (
                self.folder / f"example3-{preset}.csv",
                f"downside reproduce example3 --preset {preset}",
            )
            rows, about = read_rows(path), read_about(path.with_suffix(".json"))
            if not rows:
                parts += ["", _md.not_run(command)]
                continue
            lines = [
                [name, *(_md.number(row[column], 3) for row in rows)]
                for name, column in example3.COLUMNS.items()
                if column in rows[0]
            ]
            parts += [
                "",
                f"Preset {preset}, by `{command}`: {self._link(path)}, episode {about['episode']}. "
                f"λ at the start is {about.get('threshold', '-')} (in the paper 0.874). The "
                f"learned distributions were checked in a thousand episodes: the check "
                f"{about['checks']}.",
                "",
                _md.table((f"step, preset {preset}", *map(str, range(len(rows)))), lines),
                self._figure(
                    f"example3-{preset}",
                    f"Returns still to come, totals, and the level at each step, preset {preset}",
                ),
            ]
        return "\n".join(parts)

    def _put(self) -> str:
        parts = self._own_measures("put", put.RISKS)
        parts += ["", self._boundaries()]
        for preset in PRESETS:
            parts.append(
                self._figure(f"american-put-{preset}", f"Payoffs and boundaries, {preset}")
            )
        return "\n".join(parts)

    def _boundaries(self) -> str:
        """The price of exercise at each time."""
        plans, lines, periods = read_rows(self.results.optimum_path("put")), [], 0
        for preset in PRESETS:
            rows = self.results.rows("put", preset)
            for risk in put.RISKS:
                edges = put.boundaries(rows, risk)
                if len(edges):
                    periods = edges.shape[1]
                    middle = put.median(edges)
                    lines.append([f"QR-SRM `{risk}`, preset {preset}", *map(_md.price, middle)])
        for risk in put.RISKS if lines else ():
            best = put.planned(plans, risk, periods)
            lines.append([f"the optimum, `{risk}`", *map(_md.price, best)])
        header = ("exercised at this price or below it, at time", *map(str, range(periods)))
        return _md.table(header, lines) if lines else ""

    def _trading(self) -> str:
        table = paper_table("mean_reversion")
        parts = [self._figure("mean-reversion", "All agents by all measures")]
        parts += [self._own_table(table), agreement(self.results, table)]
        for measure in table.measures:
            parts += ["", f"### By `{measure}`", "", self._measure_table(table, measure)]
        return "\n".join(parts)

    def _spectra(self) -> str:
        parts = self._own_measures("spectra", spectra.OBJECTIVES)
        for preset in PRESETS:
            parts.append(self._figure(f"spectra-{preset}", f"Returns and spectra, preset {preset}"))
        return "\n".join(parts)

    def _quantiles(self) -> str:
        parts, results, measures = [], self.results, quantiles.MEASURES
        for preset in PRESETS:
            rows, lines = results.rows("quantiles", preset), []
            agents = sorted({(row["algorithm"], int(row["quantiles"])) for row in rows})
            for algorithm, count in reversed(agents):
                agent = f"{algorithm}, {count} quantiles"
                estimates = [results.estimate("quantiles", preset, agent, m) for m in measures]
                cells = ["" if e is None else _md.interval(e, seeds=1) for e in estimates]
                seeds = "" if estimates[0] is None else str(estimates[0].seeds)
                lines.append([agent, *cells, seeds])
            if lines:
                optima = [results.optimum("mean-reversion", measure) for measure in measures]
                best = ["-" if value is None else f"{value:.3f}" for value in optima]
                lines.append(["the optimum of each measure", *best, ""])
                header = (f"preset {preset}", *(f"`{measure}`" for measure in measures), "seeds")
                parts += ["", _md.table(header, lines)]
                parts.append(self._figure(f"quantiles-{preset}", f"Six panels, preset {preset}"))
        return "\n".join(parts)

    def _cost(self) -> str:
        path = self.folder / "quantiles-cost.csv"
        rows = read_rows(path)
        if not rows:
            return _md.not_run("downside reproduce quantiles")
        counts = sorted({int(row["quantiles"]) for row in rows})
        lines = []
        for scoring in SCORINGS:
            taken = {
                int(row["quantiles"]): float(row["milliseconds"])
                for row in select(rows, scoring=scoring)
            }
            cells = [f"{taken[n]:.2f}" if n in taken else "" for n in counts]
            ratio = f"{taken[200] / taken[50]:.1f}" if {50, 200} <= taken.keys() else ""
            lines.append([scoring, *cells, ratio])
        header = (
            "milliseconds of an update",
            *(f"N = {count}" for count in counts),
            "200 against 50, times",
        )
        made = f"Made by `downside reproduce quantiles`: {self._link(path)}."
        return f"{_md.table(header, lines)}\n{made}"

    def _lander(self) -> str:
        table = paper_table("windy_lunar_lander")
        is_run = any(self.results.rows("lunar", preset) for preset in PRESETS)
        parts = [self._figure("lunar", "All agents by all measures")] if is_run else []
        for preset in PRESETS:
            if not self.results.rows("lunar", preset):
                continue
            lines = []
            for row in table.rows:
                cells = []
                for measure in table.measures:
                    estimate = self.results.estimate("lunar", preset, row, measure)
                    ours = "not yet run" if estimate is None else _md.interval(estimate, 1, seeds=3)
                    cells.append(f"{ours} ({table.figures[row, measure]})")
                lines.append([row.replace("*", r"\*"), *cells])
            header = (f"preset {preset} (the paper's figures)", *(f"`{m}`" for m in table.measures))
            parts += ["", _md.table(header, lines)]
        parts += what_caution_does(self.results)
        parts += beside_sb3(self.results, self.folder)
        return "\n".join(parts)

    def _actors(self) -> str:
        options = Options(results=self.folder)
        tables = (
            (actors.HEADER, actors.lines(options), "actors"),
            (actors.MEMORY_HEADER, actors.memory_lines(options), "actors-memoryless"),
            (actors.PUT_HEADER, actors.put_lines(options), "actors-put"),
            (actors_planned.HEADER, actors_planned.lines(options), actors_planned.OPTIMUM),
            (actors_checks.HEADER, actors_checks.lines(options), actors_checks.NAME),
        )
        return self._tables("downside reproduce actors", tables)

    def _hedging(self) -> str:
        options = Options(results=self.folder)
        tables = (
            (hedging.HEADER, hedging.lines(options), "hedging"),
            (hedging.HESTON_HEADER, hedging.heston_lines(options), "hedging-heston"),
            (hedging.CONVERGENCE_HEADER, hedging.convergence_lines(options), "hedging-convergence"),
        )
        return self._tables("downside reproduce hedging", tables)

    def _tables(
        self, command: str, tables: Sequence[tuple[Sequence[str], list[list[str]], str]]
    ) -> str:
        """Tables with their files; the first column is code. One that has no lines is not run."""
        parts = []
        for header, lines, name in tables:
            path = self.folder / f"{name}.csv"
            if not lines:
                parts += [f"{name}: {_md.not_run(command)}", ""]
                continue
            shown = [[f"`{first}`", *rest] for first, *rest in lines]
            parts += [_md.table(header, shown), f"\n{self._link(path)}, by `{command}`.", ""]
        return "\n".join(parts)

    def _runs(self) -> str:
        """All files in the folder, with the commands that made them."""
        lines = []
        for path in sorted(self.folder.glob("*.json")):
            about, csv = read_about(path), path.with_suffix(".csv")
            seeds = " ".join(map(str, about.get("seeds", ())))
            command = about["command"] + (f" --seeds {seeds}" if seeds else "")
            minutes = seconds(read_rows(csv)) / 60
            time = f"{minutes / 60:.1f} h" if minutes >= 60 else f"{minutes:.0f} min"
            lines.append(
                [
                    self._link(csv),
                    f"`{command}`",
                    time if minutes else "",
                    *_md.made_with(about["made_with"]),
                ]
            )
        header = ("results", "command", "time", "machine", "versions")
        return _md.table(header, lines) if lines else "Nothing has been run yet."

    # --- tables -------------------------------------------------------------------------------

    def _own_table(self, table: PaperTable) -> str:
        """QR-SRM by its own objective."""
        lines = []
        for measure in table.measures:
            row = f"QR-SRM {measure}"
            best = self.results.optimum("mean-reversion", measure)
            lines.append(
                [
                    f"`{measure}`",
                    str(table.figures[row, measure]),
                    *self._ours("mean-reversion", row, measure),
                    "not yet run" if best is None else f"{best:.3f}",
                ]
            )
        header = ("QR-SRM by its own objective", "paper", *_OURS, "optimum")
        return "\n" + _md.table(header, lines)

    def _measure_table(self, table: PaperTable, measure: str) -> str:
        lines = [
            [
                row.replace("*", r"\*"),
                str(table.figures[row, measure]),
                *self._ours("mean-reversion", row, measure),
            ]
            for row in table.rows
        ]
        best = self.results.optimum("mean-reversion", measure)
        text = "The optimum is not yet known." if best is None else f"The optimum is {best:.3f}."
        return f"{text}\n\n" + _md.table(("agent", "paper", *_OURS), lines)

    def _own_measures(self, experiment: str, measures: Sequence[str]) -> list[str]:
        """QR-SRM for each of a few measures, by each of them."""
        out = []
        for preset in PRESETS:
            if not self.results.rows(experiment, preset):
                continue
            lines = []
            for objective in measures:
                cells = []
                for measure in measures:
                    estimate = self.results.estimate(
                        experiment, preset, f"QR-SRM {objective}", measure
                    )
                    cells.append("not yet run" if estimate is None else _md.interval(estimate, 4))
                lines.append([f"QR-SRM `{objective}`", *cells])
            optima = [self.results.optimum(experiment, measure) for measure in measures]
            lines.append(["the optimum", *("-" if x is None else f"{x:.4f}" for x in optima)])
            header = (f"preset {preset}", *(f"by `{measure}`" for measure in measures))
            out += ["", _md.table(header, lines)]
        return out

    def _ours(self, experiment: str, row: str, measure: str) -> list[str]:
        """For both presets, the mean with its interval, and its share of the optimum."""
        best, out = self.results.optimum(experiment, measure), []
        for preset in PRESETS:
            estimate = self.results.estimate(experiment, preset, row, measure)
            if estimate is None:
                out += ["not yet run", ""]
            else:
                out += [
                    _md.interval(estimate),
                    "" if best is None else _md.share(estimate.value, best),
                ]
        return out

    # --- pieces -------------------------------------------------------------------------------

    def _made(self, experiment: str) -> str:
        """Where it is in the paper, and the commands that made our figures."""
        text = f"In the paper: {EXPERIMENTS[experiment]}."
        for preset in PRESETS:
            command = f"downside reproduce {experiment} --preset {preset}"
            path, rows = (
                self.results.path(experiment, preset),
                self.results.rows(experiment, preset),
            )
            made = f"Made by `{command}`: {self._link(path)}." if rows else _md.not_run(command)
            text += f" {made}"
            diverged = self.results.about(experiment, preset).get("diverged")
            if diverged:
                text += (
                    f" Left out, since their losses diverged: {_md.escaped('; '.join(diverged))}."
                )
        best = self.results.optimum_path(experiment)
        about = best.with_suffix(".json")
        if about.exists():
            command = read_about(about)["command"]
            text += f" The optimum by `{command}`: {self._link(best)}."
        return text

    def _link(self, path: Path) -> str:
        return f"[{path.name}]({self._relative(path)})"

    def _relative(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.path.parent)).as_posix()

    def _figure(self, name: str, caption: str) -> str:
        path = self.folder / "figures" / f"{name}.png"
        return f"\n![{caption}]({self._relative(path)})\n" if path.exists() else ""
