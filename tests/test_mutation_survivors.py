"""Tests of the list of mutants that behave like the code."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.mutation.__main__ import JUDGED, TESTS
from tests.support.paths import ROOT

SURVIVORS = tomllib.loads(JUDGED.read_text(encoding="utf-8"))["survivor"]


def lines_of(module: str, function: str) -> list[str]:
    """Return the lines of a function ("Class.method" for a method), or of the module for ""."""
    source = (ROOT / "analysis" / f"{module}.py").read_text(encoding="utf-8")
    node: ast.AST = ast.parse(source)
    for name in filter(None, function.split(".")):
        node = next(child for child in ast.walk(node) if getattr(child, "name", None) == name)
    text = source if isinstance(node, ast.Module) else ast.get_source_segment(source, node) or ""
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda survivor: f"{survivor['module']}:{survivor['function']}")
def test_the_line_of_each_survivor_exists_in_its_function(survivor: dict[str, str]) -> None:
    assert survivor["line"] in lines_of(survivor["module"], survivor["function"])


def test_every_listed_module_is_mutated() -> None:
    assert {survivor["module"] for survivor in SURVIVORS} <= TESTS.keys()
