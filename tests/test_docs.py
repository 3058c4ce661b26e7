"""Tests of the documents: files, modules and link targets exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sawtooth.app.cli import COMMANDS
from tests.support import command_reference
from tests.support.paths import ROOT

DOCUMENTS = [
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("sample_traces/*.md"), *ROOT.glob("tests/**/*.md"))
    if "recordings" not in path.parts
]
ROOMS = ("ingest/", "analysis/", "app/", "sawtooth/", "tests/", "docs/", "sample_traces/")


def anchors(path: Path) -> set[str]:
    """Return the headings of a document in the form of link anchors."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_point_to_existing_targets(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_modules_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for token in (token for span in re.findall(r"`([^`\n]+)`", text) for token in span.split()):
        if token.startswith(ROOMS) and not re.search(r"[<>*{…]", token):
            assert (ROOT / token).exists(), f"{token} does not exist"
    for module in re.findall(r"-m ((?:tests|sawtooth)[\w.]*)", text):
        path = ROOT / re.sub(r"^sawtooth\.", "", module).replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{module} cannot be run"
    for module in re.findall(r"from (sawtooth[\w.]*) import", text):
        path = ROOT / module.removeprefix("sawtooth.").replace(".", "/")
        assert (
            path.exists() or path.with_suffix(".py").exists() or (ROOT / module.replace(".", "/")).with_suffix(".py").exists()
        ), module


def test_the_readme_is_short_and_its_commands_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"!\[[^\]]+\]\(docs/pictures/", text)) == 1
    assert len(text.split()) <= 900
    for command in (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/sawtooth demo",
        "sawtooth run train.py --epochs 3 ",
        "./.ci/run",
    ):
        assert f"\n```sh\n{command}" in text, "users copy these first commands"
    called = set(re.findall(r"^(?:\S+=\S+ )?(?:\.venv/bin/)?sawtooth (\w+)", text, re.MULTILINE))
    assert {"run", "sample", "compare", "report", "ingest"} <= called <= COMMANDS.keys()


def test_the_command_reference_matches_the_commands() -> None:
    written = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == command_reference.page(), "python -m tests.support.command_reference > docs/commands.md"
