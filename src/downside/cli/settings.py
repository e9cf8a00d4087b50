"""A flag for every field of `Settings`; left out, the preset's value holds."""

import ast
import dataclasses
import inspect
import textwrap
from typing import Annotated, Any, get_type_hints

import tyro

from downside.agents import Settings


def with_settings(commands: Any) -> Any:
    """The union of commands, those that have `changes` replaced by ones that know all settings."""
    hints, said = get_type_hints(Settings), _docstrings(Settings)
    fields = [
        (
            field.name,
            Annotated[
                hints[field.name] | None,
                tyro.conf.arg(
                    help=said[field.name],
                    help_behavior_hint=f"(in the preset `default`: {field.default})",
                ),
            ],
            dataclasses.field(default=None),
        )
        for field in dataclasses.fields(Settings)
        if field.name != "total_timesteps"  # --steps
    ]
    names = tuple(name for name, _, _ in fields)
    union: Any = None
    for one in commands.__args__:
        kind, about = one.__origin__, one.__metadata__
        if hasattr(kind, "changes"):
            namespace = {"changes": names, "__doc__": kind.__doc__}
            kind = dataclasses.make_dataclass(
                kind.__name__, fields, bases=(kind,), frozen=True, namespace=namespace
            )
        part: Any = Annotated[kind, *about]
        union = part if union is None else union | part
    return union


def _docstrings(kind: type) -> dict[str, str]:
    """The sentence under each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = text.value.value if _is_text(text) else ""  # pyright: ignore
            found[field.target.id] = " ".join(str(said).split())
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
