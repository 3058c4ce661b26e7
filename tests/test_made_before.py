"""Tests that a data folder, a bundle and a link of an earlier version open with the same numbers."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import opened_at, words_of
from tests.support.paths import ROOT

MADE_BEFORE = ROOT / "tests" / "data" / "made_before"
SAID = json.loads((MADE_BEFORE / "said.json").read_text(encoding="utf-8"))
RUNS = sorted(SAID["runs"])


def command(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian's Python 3.11.2 has no filters.


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("before")
    with tarfile.open(MADE_BEFORE / "folder.tar.xz") as archive:
        archive.extractall(place, **SAFELY)
    return place


def says_the_same(data: Path, run: str) -> None:
    answer: dict[str, Any] = SAID["runs"][run]
    report = json.loads(command("report", run, "--data", str(data), "--format", "json"))
    assert report["run"]["name"] == answer["name"]
    # Newer reports have the change to make, or "the run is healthy", before this sentence. The GPU's share of a step is the same.
    does = answer["verdict"].split(". ")[0].lower().replace("the gpu works", "the gpu is busy")  # The words have changed.
    text = command("report", run, "--data", str(data), "--format", "text")
    assert any(does in line.lower() for line in text.splitlines()[1:4])
    for metric in ("step_time_best_ms", "mfu", "gpu_busy_share"):
        assert report["metrics"][metric]["value"] == pytest.approx(answer[metric], rel=1e-9), metric


@pytest.mark.parametrize("run", RUNS)
def test_an_old_data_folder_gives_the_same_numbers(unpacked: Path, run: str) -> None:
    says_the_same(unpacked / "data", run)


def test_an_old_comparison_gives_the_same_numbers(unpacked: Path) -> None:
    answer = SAID["comparison"]
    best = json.loads(command("compare", *RUNS, "--data", str(unpacked / "data"), "--format", "json"))["best_step_time_ms"]
    assert best["change_ms"] == pytest.approx(answer["change_ms"], rel=1e-9)
    # The earlier version gave no verdict for few steps. Now, non-overlapping intervals of step times suffice.
    assert (answer["verdict"], best["verdict"]) == ("inconclusive", "faster")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("run", RUNS)
def test_an_old_bundle_gives_the_same_runs(unpacked: Path, tmp_path: Path, run: str) -> None:
    command("import", str(unpacked / "both.sawtooth"), "--data", str(tmp_path / "data"))
    says_the_same(tmp_path / "data", run)


def test_an_old_link_opens_the_same_comparison(unpacked: Path, app_data: DataFolder) -> None:
    shutil.copytree(unpacked / "data", app_data.root, dirs_exist_ok=True)
    answer = SAID["comparison"]
    address = urlsplit(answer["address"])
    page = opened_at(address.path.strip("/"), **dict(parse_qsl(address.query)))
    # The words around the times have changed.
    before, after = answer["sentence"].rpartition(": ")[2].removesuffix(" a step.").split(" → ")
    text = words_of(page)
    assert before in text and after in text and "as fast" in text
    table = next(frame.value for frame in page.dataframe if "matched_by" in frame.value.columns)
    assert list(table["what"]) == answer["operators_named"]
