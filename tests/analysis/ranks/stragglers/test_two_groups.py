"""Tests of ranks in two groups, the larger of which is late: reported without a rank's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job


def analysed(folder: Path, planted: Planted) -> RunResult:
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(job(6, 2, planted))]
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    return analyse(run, Library(data))


def test_two_late_hosts_of_three_are_a_group(tmp_path: Path) -> None:
    """Hosts node0001 and node0002 load for 0.8 ms of each step."""
    result = analysed(tmp_path, Planted(loader_us=dict.fromkeys(range(2, 6), 800.0), clock_us={2: 3000.0}))
    communication = result.communication
    assert communication is not None and communication.stragglers == () and communication.split is not None
    assert communication.split.late.ranks == (2, 3, 4, 5)
    assert communication.split.behind_ms == pytest.approx(0.8, abs=0.02)
    found = next(finding for finding in result.findings if finding.rule == "straggling-rank")
    assert found.title == (
        "In the recording, ranks 2, 3, 4 and 5 arrive 800 µs per step after host node0000 with its 2 ranks, which wait for them"
    )
    assert "800 µs more per step for their data loader" in found.fix
    assert (found.severity, found.predicted_step_ms) == ("info", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [
        Planted(clock_us={1: 4000.0}),
        Planted(host_us={0: 40.0, 1: 40.0}),  # A distance of 3 % of a step or more separates two groups.
        Planted(host_us={0: 100.0, 1: 200.0, 2: 300.0, 3: 400.0}),  # Scattered: no two ranks arrive together.
    ],
)
def test_scattered_or_simultaneous_ranks_are_not_groups(tmp_path: Path, planted: Planted) -> None:
    communication = analysed(tmp_path, planted).communication
    assert communication is not None and communication.split is None
