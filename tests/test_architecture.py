"""Data flows one way: nothing imports what stands to its right."""

import ast
from pathlib import Path

import pytest

import downside

SOURCE = Path(downside.__file__ or "").parent
ORDER = [
    {"_typing", "_arrays", "_files", "_machine", "_memory", "_names", "_random", "_registration"},
    {"_locks"},
    {"risk"},
    {"decompose", "ops"},
    {"envs"},
    {"exact"},
    {"agents"},
    {"train"},
    {"evaluation", "baselines"},
    {"runs"},
    {"explanation"},
    {"reporting"},
    {"studies"},
    {"experiments"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def imports(path):
    """Every module of ours that the file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


FILES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_imports_to_its_right(path):
    home = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert home in RANK, f"say in ORDER where {home} stands"
    for module in imports(path):
        if module.startswith("downside."):
            assert RANK[module.split(".")[1]] <= RANK[home], f"{path.name} imports {module}"


def test_the_public_names_are_there():
    for name in downside.__all__:
        assert getattr(downside, name) is not None
    assert set(downside.__all__) <= set(dir(downside))
