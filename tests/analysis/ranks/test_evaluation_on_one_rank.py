"""Tests of an evaluation that one rank does in a profiled step, from traces alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace

OWN_GRID = [77, 1, 1]  # The grid of the kernel that only rank 0 runs.


def with_layers(trace: ChromeTrace, *, evaluation: bool) -> None:
    """Add layers with a graph around the launches of training.

    With ``evaluation``, the rank's own kernel is launched by a layer without a graph.
    """
    grids = {e["args"]["correlation"]: e["args"].get("grid") for e in trace.events if e["cat"] == "kernel"}
    for number, event in enumerate([e for e in trace.events if e["cat"] == "cuda_runtime"]):
        grid, at = grids.get(event["args"].get("correlation")), event["ts"]
        if grid == [500, 1, 1]:
            trace.op("aten::linear", at - 0.2, at + event["dur"] + 0.2, [[8, 8]], ["float"], **{"Sequence number": number})
        elif grid == OWN_GRID and evaluation:
            trace.op("aten::linear", at - 0.2, at + event["dur"] + 0.2, [[8, 8]], ["float"])


@pytest.fixture(params=[True, False], ids=["evaluation", "unknown work"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bool, dict[str, Finding]]:
    """Return whether rank 0 evaluates, and the findings by rule.

    In the third of eight counted steps, rank 0 has 12 ms of work of its own.
    """
    traces = job(2, 2, Planted(own_kernel_us={0: 12_000.0}, late_in=frozenset({3})), steps=9)
    with_layers(traces[0], evaluation=request.param)
    paths = [trace.write(tmp_path / f"{rank}.json") for rank, trace in enumerate(traces)]
    library = Library(DataFolder(tmp_path / "data").create())
    (run,) = ingest_into_runs(library.folder, [(path, path.name) for path in paths]).runs
    return request.param, {item.rule: item for item in analyse(run, library).findings}


def test_the_rank_is_named_if_its_trace_shows_the_evaluation(found: tuple[bool, dict[str, Finding]]) -> None:
    evaluation, findings = found
    stalls = findings["periodic-stalls"]
    title = stalls.title.replace("\xa0", " ")
    if evaluation:
        assert title == "Evaluation takes rank 0 12 ms in 1 of 8 steps (ProfilerStep#3), while the other ranks wait"
        assert stalls.action.verb == "Evaluate"
    else:
        assert title.startswith("Some profiled steps have more GPU work: 1 of 8")
        assert "the trace does not show what the additional work is for" in stalls.prediction_note
    assert stalls.predicted_step_ms is None
