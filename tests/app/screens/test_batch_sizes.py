"""Tests of batch sizes on the Memory screen and on the command line: results and instructions."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.ingest.manifest import BatchTrial, UserFacts
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import opened_at, words_of
from tests.support.prepared import prepared

TRIALS = [BatchTrial(64, step_ms=1.5, optimizer_ms=0.1, memory_bytes=2e9), BatchTrial(96)]


@pytest.fixture
def run(app_data, tmp_path):
    return prepared(app_data, matmul_loop(steps=6).write(tmp_path / "sizes.json"), name="sizes")


def test_without_trials_the_page_says_how_to_try(run):
    text = words_of(opened_at("memory", run=run.id))
    assert "Which batch size fits, and which is fastest?" in text and "a tag such as batch_size=64" in text


def test_tried_sizes_are_shown_as_a_curve_and_a_table(app_data, run):
    facts = UserFacts(samples_per_step=32)
    app_data.write_manifest(msgspec.structs.replace(run, batches=TRIALS, facts=facts, settings={"batch_size": "32"}))
    test = opened_at("memory", run=run.id)
    text = words_of(test)
    assert "64 fits into memory and 96 does not" in text and "Which batch size fits" not in text
    table = next(f.value for f in test.dataframe if "throughput" in f.value.columns)
    assert list(table["value"]) == ["32", "64", "96"] and table["note"].iloc[2] == "out of memory"
    arguments = ["sweep", run.id, "--data", str(app_data.root)]
    plain = json.loads(CliRunner().invoke(cli, [*arguments, "--format", "json"]).output)
    assert [(p["value"], p["tried_beside_the_run"], p["out_of_memory"]) for p in plain["points"]] == [
        ("32", False, False), ("64", True, False), ("96", True, True)
    ]  # fmt: skip
    markdown = CliRunner().invoke(cli, [*arguments, "--format", "md"]).output
    assert "| 96 | only timed |" in markdown and "out of memory" in markdown
