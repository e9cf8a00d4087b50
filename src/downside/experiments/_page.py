"""`docs/reproduction.md`, written from what is in `results/`: every number beside the paper's."""

import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import StrictUndefined, Template

from downside.experiments import _md, example1, example2, example3, put, quantiles, spectra
from downside.experiments._agreement import agreement
from downside.experiments._book import Book, seconds
from downside.experiments._claims import CLAIMS, judge
from downside.experiments._cost import SCORINGS
from downside.experiments._lander import beside_sb3, what_caution_does
from downside.experiments._paper import PaperTable, example3_levels, paper_table
from downside.experiments._rows import read_about, read_rows, select

PRESETS = ("default", "paper")
STUDIES = {
    "put": "figure 2",
    "mean-reversion": "table 2",
    "spectra": "figure 3",
    "quantiles": "appendix I",
    "lunar": "table 3",
}
"""Where the paper has each of them."""
_OURS = ("preset default", "of the optimum", "preset paper", "of the optimum")


class Page:
    """The text of the page; figures and data are linked from where it stands."""

    def __init__(self, folder: Path, path: Path):
        self.book, self.folder, self.path = Book(folder), folder, path

    def text(self) -> str:
        """All of it."""
        prose = importlib.resources.files("downside.experiments") / "reproduction.md.j2"
        docs = "" if self.path.parent.name == "docs" else self._relative(Path("docs")) + "/"
        template = Template(
            prose.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True
        )
        text = template.render(
            docs=docs,
            made={study: self._made(study) for study in STUDIES},
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
            runs=self._runs(),
        )
        return re.sub(r"\n{3,}", "\n\n", text)

    # --- parts --------------------------------------------------------------------------------

    def _claims(self, *, hoped: bool) -> str:
        lines = []
        for claim in (one for one in CLAIMS if one.hoped == hoped):
            found = [judge(claim, self.book, preset) for preset in PRESETS]
            lines.append([_md.escaped(claim.says), *(_md.verdict(claim, one) for one in found)])
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
        """The price at which the put is exercised, at each time."""
        plans, lines, periods = read_rows(self.book.optimum_path("put")), [], 0
        for preset in PRESETS:
            rows = self.book.rows("put", preset)
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
        parts += [self._own_table(table), agreement(self.book, table)]
        for measure in table.measures:
            parts += ["", f"### By `{measure}`", "", self._measure_table(table, measure)]
        return "\n".join(parts)

    def _spectra(self) -> str:
        parts = self._own_measures("spectra", spectra.OBJECTIVES)
        for preset in PRESETS:
            parts.append(self._figure(f"spectra-{preset}", f"Returns and spectra, preset {preset}"))
        return "\n".join(parts)

    def _quantiles(self) -> str:
        parts, book, measures = [], self.book, quantiles.MEASURES
        for preset in PRESETS:
            rows, lines = book.rows("quantiles", preset), []
            agents = sorted({(row["algorithm"], int(row["quantiles"])) for row in rows})
            for algorithm, count in reversed(agents):
                agent = f"{algorithm}, {count} quantiles"
                found = [book.range("quantiles", preset, agent, one) for one in measures]
                cells = ["" if one is None else _md.interval(one, seeds=1) for one in found]
                seeds = "" if found[0] is None else str(found[0].seeds)
                lines.append([agent, *cells, seeds])
            if lines:
                optima = [book.optimum("mean-reversion", one) for one in measures]
                best = ["-" if one is None else f"{one:.3f}" for one in optima]
                lines.append(["the optimum of each measure", *best, ""])
                header = (f"preset {preset}", *(f"`{one}`" for one in measures), "seeds")
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
        there = any(self.book.rows("lunar", preset) for preset in PRESETS)
        parts = [self._figure("lunar", "All agents by all measures")] if there else []
        for preset in PRESETS:
            if not self.book.rows("lunar", preset):
                continue
            lines = []
            for row in table.rows:
                cells = []
                for measure in table.measures:
                    found = self.book.range("lunar", preset, row, measure)
                    ours = "not yet run" if found is None else _md.interval(found, 1, seeds=3)
                    cells.append(f"{ours} ({table.figures[row, measure]})")
                lines.append([row.replace("*", r"\*"), *cells])
            said = f"preset {preset} (the paper's figures)"
            parts += ["", _md.table((said, *(f"`{one}`" for one in table.measures)), lines)]
        parts += what_caution_does(self.book)
        parts += beside_sb3(self.book, self.folder)
        return "\n".join(parts)

    def _runs(self) -> str:
        """Everything there is in the folder, with the command that made it."""
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
            best = self.book.optimum("mean-reversion", measure)
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
        best = self.book.optimum("mean-reversion", measure)
        said = "The optimum is not yet known." if best is None else f"The optimum is {best:.3f}."
        return f"{said}\n\n" + _md.table(("agent", "paper", *_OURS), lines)

    def _own_measures(self, study: str, measures: Sequence[str]) -> list[str]:
        """QR-SRM for each of a few measures, by each of them."""
        out = []
        for preset in PRESETS:
            if not self.book.rows(study, preset):
                continue
            lines = []
            for objective in measures:
                cells = []
                for measure in measures:
                    found = self.book.range(study, preset, f"QR-SRM {objective}", measure)
                    cells.append("not yet run" if found is None else _md.interval(found, 4))
                lines.append([f"QR-SRM `{objective}`", *cells])
            optima = [self.book.optimum(study, one) for one in measures]
            lines.append(["the optimum", *("-" if x is None else f"{x:.4f}" for x in optima)])
            header = (f"preset {preset}", *(f"by `{one}`" for one in measures))
            out += ["", _md.table(header, lines)]
        return out

    def _ours(self, study: str, row: str, measure: str) -> list[str]:
        """In both presets, the mean with its interval, and how it compares with the optimum."""
        best, out = self.book.optimum(study, measure), []
        for preset in PRESETS:
            found = self.book.range(study, preset, row, measure)
            if found is None:
                out += ["not yet run", ""]
            else:
                out += [
                    _md.interval(found),
                    "" if best is None else _md.share(found.value, best),
                ]
        return out

    # --- pieces -------------------------------------------------------------------------------

    def _made(self, study: str) -> str:
        """Where it is in the paper, and what made our figures."""
        text = f"In the paper: {STUDIES[study]}."
        for preset in PRESETS:
            command = f"downside reproduce {study} --preset {preset}"
            path, rows = self.book.path(study, preset), self.book.rows(study, preset)
            made = f"Made by `{command}`: {self._link(path)}." if rows else _md.not_run(command)
            text += f" {made}"
            diverged = self.book.about(study, preset).get("diverged")
            if diverged:
                text += (
                    f" Left out, since their losses diverged: {_md.escaped('; '.join(diverged))}."
                )
        best = self.book.optimum_path(study)
        about = best.with_suffix(".json")
        if about.exists():
            command = read_about(about)["command"]
            text += f" The optimum by `{command}`: {self._link(best)}."
        return text

    def _link(self, path: Path) -> str:
        return f"[{path.name}]({self._relative(path)})"

    def _relative(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.path.parent)).as_posix()

    def _figure(self, name: str, said: str) -> str:
        path = self.folder / "figures" / f"{name}.png"
        return f"\n![{said}]({self._relative(path)})\n" if path.exists() else ""
