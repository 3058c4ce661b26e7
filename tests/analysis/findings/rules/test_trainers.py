"""Tests of advice for a loop that a trainer makes: Transformers' Trainer or Lightning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.schema import DataFolder
from tests.support.by_hand import of_rule
from tests.support.findings_of import stopwatch_ms
from tests.support.paths import RECORDINGS

RECORDED = "mlp_eager"  # Launches limit it.


def marks_of(path: Path, trainer: str) -> Path:
    """Write marks of 300 steps, called by ``trainer`` ("" for the user's own loop)."""
    clock = {"now": 0}
    writer = MarkWriter(path, wall_ns=lambda: 1_700_000_000_000_000_000, monotonic_ns=lambda: clock["now"])
    for step in range(300):
        clock["now"] += int(stopwatch_ms(RECORDED) * 1e6)
        writer.mark(step, site=(0, ("train.py:12",), trainer))
    writer.close()
    return path


@pytest.mark.parametrize(
    ("trainer", "words", "framework"),
    [
        ("", "the step as one CUDA graph", "PyTorch"),
        ("Transformers", "the model's passes as CUDA graphs with torch_compile=True", "Transformers"),
        ("Lightning", "the model's passes as CUDA graphs with model.compile(", "Lightning"),
    ],
)
def test_a_trainers_step_is_not_captured_by_hand(tmp_path: Path, trainer: str, words: str, framework: str) -> None:
    # The optimizer and the trainer's own work stay outside of the graph, so it saves less than one graph of the step.
    trace, marks = RECORDINGS / RECORDED / "trace.json.gz", marks_of(tmp_path / "marks.jsonl", trainer)
    folder = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(folder, [(trace, "trace.json.gz"), (marks, "marks.jsonl")]).runs
    library = Library(folder)
    result = analyse(run, library)
    launches = of_rule(result, "launch-bound")
    assert launches is not None and words in launches.action.sentence
    assert {change.framework for change in launches.changes} >= {framework, "Lightning", "Transformers"}
    assert launches.changes[0].framework == framework
    assert launches.predicted_step_ms is not None
    others = [
        finding.changes[0].framework for finding in result.findings if any(c.framework == framework for c in finding.changes)
    ]
    assert set(others) == {framework}, "the code of the trainer stands first in each finding"
    library.close()


def test_the_trainer_is_noted_once_for_each_call_site(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in marks_of(tmp_path / "marks.jsonl", "Lightning").read_text().splitlines()]
    assert [line["by"] for line in lines if "by" in line] == ["Lightning"]
