"""Makes docs/gallery from examples/: runs them, keeps what they print and draw, writes the pages.

python docs/gallery.py                      # the pages alone, from the docstrings
python docs/gallery.py --run                # runs all examples as well, with their small settings
python docs/gallery.py --run dial --full    # some of them, with their full settings
"""

import argparse
import ast
import contextlib
import io
import os
import runpy
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES, GALLERY = ROOT / "examples", ROOT / "docs" / "gallery"
NAMES = (
    "value_a_risk_measure",
    "plan_a_put",
    "hedging",
    "own_simulator",
    "dial",
    "explain_a_decision",
    "registry_environment",
    "sb3_risk_reward",
    "study",
)
"""In the order of the index."""


def description(name: str) -> tuple[str, str, str]:
    """The title of an example, the commands in its docstring, and what it says besides."""
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
    assert text is not None
    title, *blocks = text.split("\n\n")
    commands = [block for block in blocks if block.startswith("    ")]
    words = [block for block in blocks if not block.startswith("    ")]
    return title.rstrip("."), textwrap.dedent("\n".join(commands)), "\n\n".join(words)


def page(name: str) -> str:
    """The page of an example. The picture and the output are files beside it."""
    title, commands, words = description(name)
    return f"""# {title}

{words}

![{title}]({name}.png)

```bash
{commands}
```

```{{literalinclude}} {name}.txt
:language: text
```

```{{literalinclude}} ../../examples/{name}.py
:language: python
```
"""


def index() -> str:
    """The page with all examples."""
    lines = [
        "# Gallery",
        "",
        "Each example is one file in `examples/`, with small settings by default and full ones",
        "with `--full`. Above each output stands the command that made it.",
        "",
        "{.gallery}",
    ]
    for name in NAMES:
        title, _, _ = description(name)
        lines.append(f"- [![]({name}.png) {title}]({name}.md)")
    lines += ["", "```{toctree}", ":hidden:", "", *NAMES, "```"]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """All pages, by their file."""
    return {
        GALLERY / "index.md": index(),
        **{GALLERY / f"{name}.md": page(name) for name in NAMES},
    }


def run(name: str, full: bool) -> None:
    """Runs an example; keeps its output and its picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    sys.path.insert(0, str(EXAMPLES))
    # `make bench-update` puts stable-baselines3 there; ours comes first for everything else.
    sys.path += map(str, (ROOT / ".venv-bench").glob("lib/python3*/site-packages"))
    begin, printed = _cpu_seconds(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        figure = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](full=full)
    seconds = _cpu_seconds() - begin
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    text = "\n".join([f"$ python examples/{name}.py{' --full' * full}", *lines])
    cost = f"({seconds:.0f} seconds of one core)"
    (GALLERY / f"{name}.txt").write_text(f"{text.rstrip()}\n\n{cost}\n", encoding="utf-8")
    figure.savefig(GALLERY / f"{name}.png", dpi=100)


def _cpu_seconds() -> float:
    """Of this process and those that it started."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def main() -> None:
    """Runs what was asked for, each in a process of its own, and writes the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", nargs="*", choices=NAMES, help="examples to run; none: all")
    parser.add_argument("--full", action="store_true", help="with their full settings")
    parser.add_argument("--alone", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run(options.alone, options.full)
        return
    for name in () if options.run is None else options.run or NAMES:
        subprocess.run(
            [sys.executable, __file__, "--alone", name, *["--full"] * options.full], check=True
        )
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
