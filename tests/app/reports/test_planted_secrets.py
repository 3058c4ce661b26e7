"""Tests that secrets in a trace or its telemetry stay in the data folder.

Nothing that is shown or exported contains the host, its user or their secrets.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.page.sharing import slide
from sawtooth.app.places import SCREENS
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import opened_at
from tests.support.paths import RECORDINGS

HOST, USER, VARIABLE, KEY, ARGUMENT = (
    "planted-host",
    "planted-user",
    "planted-variable",
    "sk-planted4242424242",
    "planted-argument",
)
METADATA = {
    "hostname": HOST,
    "user": USER,
    "env": {"HOME": f"/home/{USER}", "X": VARIABLE},
    "cmdline": f"python train.py --api-key {ARGUMENT} --user {USER}",
    "launcher": json.dumps({"env": {"X": VARIABLE}, "api_key": KEY}),
    "traceName": f"/home/{USER}/trace.json",
}
FORMS = ["text", "md", "html", "json"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    place = tmp_path_factory.mktemp("planted")
    trace = json.loads(gzip.decompress((RECORDINGS / "mlp_4093" / "trace.json.gz").read_bytes()))
    (place / "trace.json").write_text(json.dumps({**trace, **METADATA}))
    head, *ticks = (RECORDINGS / "mlp_4093" / "nvml.jsonl").read_text().splitlines()
    (place / "nvml.jsonl").write_text("\n".join([json.dumps({**json.loads(head), **METADATA, "host": HOST}), *ticks]))
    folder = DataFolder(place / "data").create()
    ingest_into_runs(folder, [(place / name, name) for name in ("trace.json", "nvml.jsonl")])
    return folder


@pytest.fixture(scope="module")
def run(data: DataFolder) -> str:
    (manifest,) = data.manifests()
    return manifest.id


@pytest.fixture(scope="module")
def result(data: DataFolder, run: str) -> Iterator[tuple[RunResult, Library]]:
    library = Library(data)
    yield analyse(data.read_manifest(run), library), library
    library.close()


def planted(text: str) -> list[str]:
    return [word for word in (HOST, USER, VARIABLE, KEY, ARGUMENT) if word in text]


def test_the_secret_is_planted_where_it_is_read(result: tuple[RunResult, Library]) -> None:
    """The secrets were planted where the reader finds them.

    Recordings keep the original metadata for users who are logged in and query it in SQL.
    """
    remaining = ""
    for ref in result[0].manifest.recordings:
        with result[1].open(ref.id) as recording:
            remaining += str(recording.rows("SELECT host, metadata FROM recording"))
    assert planted(remaining) == [HOST, USER, VARIABLE, KEY, ARGUMENT]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    "words",
    [*(["report", "RUN", "--format", form] for form in FORMS), *(["compare", "RUN", "RUN", "--format", form] for form in FORMS), ["audit", "RUN"], ["runs"], ["doctor"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.usefixtures("own_temporary_folder")
def test_no_command_prints_the_secret(data: DataFolder, run: str, words: list[str]) -> None:
    done = CliRunner().invoke(cli, [run if word == "RUN" else word for word in words] + ["--data", str(data.root)])
    assert done.exit_code == 0, done.output
    assert len(done.output) > 30 and not planted(done.output)


def test_no_slide_contains_the_secret(result: tuple[RunResult, Library]) -> None:
    side = side_of([result[0]], result[1])
    slides = [slide.of_run(result[0]), slide.of_comparison(compare(side, side))]
    assert all(slides) and not planted(json.dumps(slides))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("screen", [screen.name for screen in SCREENS])
def test_no_page_shows_the_secret_unasked(
    data: DataFolder, run: str, screen: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAWTOOTH_DATA", str(data.root))
    page = opened_at(screen, run=run)
    tables = [table.value.to_csv() for table in page.dataframe]
    assert not planted(
        " ".join([str(page.main), *(str(element.proto) for element in page.main if hasattr(element, "proto")), *tables])
    )
    assert not planted(os.linesep.join(capfd.readouterr()))


def test_a_server_does_not_log_the_secret(data: DataFolder, run: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A refused file is logged by its name alone."""
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(METADATA)[:-1])
    CliRunner().invoke(cli, ["ingest", str(damaged), "--data", str(tmp_path / "data")])
    assert not planted(caplog.text)
