"""Tests of the language that people read: docstrings, names and sentences."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("analysis", "app", "ingest", "recorder")
LONGEST_FIRST_LINE = 100
# Words of older code for which docs/glossary.md has the field's term.
DENIED = {
    "witness",
    "witnesses",
    "seal",
    "seals",
    "stranger",
    "strangers",
    "lateness",
    "coupled",
    "told",
    "outlook",
    "promise",
    "whose",
    "hole",
    "holes",
    "worth",
    "tangled",
    "teeth",
    "tells",
    "mates",
    "things",
    "strange",
    "pace",
    "paced",
    "pacing",
    "carrier",
}
RELEASED = {"analysis/run/contract.py: witnesses"}  # Released keys of the JSON report, which cannot change.
TWICE = {"SawtoothCapture"}  # The public callbacks of Lightning and of Hugging Face, which users import by this name.
MAX_WORDS = 25  # Largest mean number of words per sentence, for the texts that a module shows to users.
# What the user can do about a source that Sawtooth cannot read.
INSTRUCTION = re.compile(
    "(Add|Ask|Copy|Export|Filter|Free|Give|If it is|Import|Ingest|Install|Pass|Profile|Query|Record|Run|Save|Scrape|Unpack|Update|Wait|Write) "
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Matches a docstring's first line that is too long, in a file's text, because parsing all tests would take two seconds.
LONG_FIRST_LINE = re.compile(rf'(?:\A|:(?:[ \t]*#.*)?\n)[ \t]*r?"""((?:(?!""").){{{LONGEST_FIRST_LINE + 1},}})')


@lru_cache(maxsize=1)
def _trees() -> list[tuple[str, ast.Module]]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def _first_lines(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text.splitlines()[0]


def _named(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines: functions, classes, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?:])\s+", text) if len(part.split()) > 2]


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield a module's strings of several words that end like sentences.

    A value in an f-string counts as one word.
    """
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in documented or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if text.rstrip().endswith((".", "!", "?")) and " " in text:
            yield text


def test_first_docstring_lines_are_short() -> None:
    long = {f"{path}: {line}" for path, tree in _trees() for line in _first_lines(tree) if len(line) > LONGEST_FIRST_LINE}
    assert long == set()


def test_first_docstring_lines_of_tests_are_short() -> None:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    long = {str(path.relative_to(ROOT)): LONG_FIRST_LINE.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: lines for path, lines in long.items() if lines} == {}


@pytest.mark.parametrize(
    "before", ["", "class A:\n    ", "def f(a):  # fmt: skip\n    ", "async def f(\n    a: int,\n) -> None:\n    r"]
)
def test_a_long_first_docstring_line_is_noticed_in_a_text(before: str) -> None:
    for letters, found in ((LONGEST_FIRST_LINE, 0), (LONGEST_FIRST_LINE + 1, 1)):
        for after in ("", "\n\n    More.\n    "):
            assert len(LONG_FIRST_LINE.findall(f'{before}"""{"x" * letters}{after}"""')) == found


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in TWICE:
                places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_names_use_the_words_of_the_glossary() -> None:
    denied = {f"{path}: {name}" for path, tree in _trees() for name in _named(tree) if _words(name) & DENIED}
    assert denied == RELEASED


def test_a_denied_word_is_noticed_inside_a_name() -> None:
    names = set(_named(ast.parse("def with_holes(x, step_witness):\n    LossWorthNaming = 1")))
    assert {name for name in names if _words(name) & DENIED} == {"with_holes", "step_witness", "LossWorthNaming"}


def test_sentences_to_users_are_short_on_average() -> None:
    counts = {
        path: [len(sentence.split()) for text in _texts(tree) for sentence in _sentences(text)]
        for path, tree in _trees()
        if path.startswith(("app/words/", "app/commands/", "app/reports/", "analysis/findings/"))
    }
    means = {path: sum(words) / len(words) for path, words in counts.items() if len(words) >= 5}
    assert len(means) > 50
    assert {path: mean for path, mean in means.items() if mean > MAX_WORDS} == {}


def test_long_sentences_are_counted() -> None:
    tree = ast.parse(f'print(f"{{a}} {"word " * 30}ends. Short one here.")')
    assert [len(sentence.split()) for text in _texts(tree) for sentence in _sentences(text)] == [32, 3]


def test_errors_of_a_source_say_what_to_do() -> None:
    """The last sentence is an instruction. Messages that end with a variable are not checked."""
    without = {
        f"{path}: {text}"
        for path, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SourceError"
        for text in _texts(ast.Module([ast.Expr(node.args[1])], []))
        if not INSTRUCTION.match(_sentences(text)[-1])
    }
    assert without == set()


def test_documents_are_for_people() -> None:
    """The README and each guide stay within their word limits."""
    words = {
        path: len(path.read_text(encoding="utf-8").split())
        for path in [ROOT / "README.md", ROOT / "docs" / "recording.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    }
    limits = {path: 900 if path.name == "README.md" else 1500 for path in words}
    assert {str(Path(path).relative_to(ROOT)): count for path, count in words.items() if count > limits[path]} == {}


def test_the_changelog_tells_a_version_in_sixty_lines() -> None:
    _, *versions = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8").split("\n## ")
    assert {version.split("]")[0]: lines for version in versions if (lines := len(version.splitlines())) > 60} == {}
