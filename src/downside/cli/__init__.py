"""The command line: parse, call the Python API, print. `downside --help` lists the commands."""

import os
import sys
from typing import Annotated, Any, get_args

import tyro

from downside._names import did_you_mean
from downside.cli._common import import_module
from downside.cli.frontier import Frontier
from downside.cli.lists import Envs, Risks
from downside.cli.planning import Solve
from downside.cli.reproducing import Reproduce
from downside.cli.sweeping import Sweep
from downside.cli.training import Evaluate, Export, Resume, Runs, Train
from downside.reporting.commands import Explain, Report

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Runs, tyro.conf.subcommand("runs")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Explain, tyro.conf.subcommand("explain")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Frontier, tyro.conf.subcommand("frontier")]
    | Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[Envs, tyro.conf.subcommand("envs")]
    | Annotated[Risks, tyro.conf.subcommand("risks")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)
_COMMANDS = tuple(get_args(each)[1].name for each in get_args(Command))


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line; exits with 1 for our errors and 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from downside import __version__

        print(f"downside {__version__}")  # noqa: T201
        return
    if not arguments:
        from downside.cli.welcome import welcome

        welcome()
        return
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, "")  # as with python -m: a module here may register environments
    try:
        _parsed(_with_imports(arguments)).run()
    except KeyboardInterrupt as interruption:
        message = str(interruption) or "interrupted; nothing was written."
        print(f"downside: {message}", file=sys.stderr)  # noqa: T201
        terminated = type(interruption) is not KeyboardInterrupt
        raise SystemExit(EXIT_TERMINATED if terminated else EXIT_INTERRUPTED) from None
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename is None:
            message = error.strerror  # without the number that Python writes before it
        print(f"downside: {message}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_ERROR) from None


def _with_imports(arguments: list[str]) -> list[str]:
    """Imports the modules named by `--import`, which may define agents and environments; gives the
    other arguments."""
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument != "--import":
            rest.append(argument)
            continue
        module = next(remaining, None)
        if module is None:
            raise ValueError("`--import` must be followed by the name of a module.")
        import_module(module)
    return rest


def _parsed(arguments: list[str]) -> Any:
    kind: Any = Command
    if arguments and not arguments[0].startswith("-") and arguments[0] not in _COMMANDS:
        hint = did_you_mean(arguments[0], _COMMANDS)
        print(  # noqa: T201
            f"downside: `{arguments[0]}` is no command.{hint} The commands are "
            f"{', '.join(_COMMANDS)}; `downside --help` says what they do.",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_USAGE)
    if arguments[:1] in (["train"], ["frontier"]):  # a flag for every setting, which needs JAX
        from downside.cli.settings import with_settings

        kind = with_settings(Command, arguments)
    return tyro.cli(
        kind,
        prog="downside",
        description="Reinforcement learning that optimises what happens when things go badly. "
        "With --import MODULE, modules that define your own agents or environments are imported "
        "first.",
        args=arguments,
    )
