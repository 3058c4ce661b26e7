"""The communication of generated jobs, with their stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.without_findings import analyse_without_findings


def communication_of_job(
    folder: Path,
    planted: Planted,
    *,
    ranks: int = 4,
    per_host: int = 2,
    mesh: bool = True,
    steps: int = 5,
    cut: int | None = None,
) -> Communication:
    """Return the job's communication. The trace of rank ``cut`` is cut to half of its bytes."""
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(job(ranks, per_host, planted, mesh=mesh, steps=steps))]
    if cut is not None:
        paths[cut].write_bytes(paths[cut].read_bytes()[: paths[cut].stat().st_size // 2])
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse_without_findings(run, Library(data))
    assert result.communication is not None
    late = report_json(result)["stragglers"]
    assert [(straggler["ranks"], straggler["gain_ms"]) for straggler in late] == [
        (list(s.ranks), s.gain_ms) for s in result.communication.stragglers
    ]
    return result.communication


def communication_of(folder: Path, traces: Sequence[ChromeTrace]) -> Communication:
    """Return the communication of a job. ``traces`` has the trace of each rank."""
    data = DataFolder(folder / "data").create()
    (run,) = ingest_into_runs(data, [(trace.write(folder / f"{i}.json"), f"{i}.json") for i, trace in enumerate(traces)]).runs
    communication = analyse_without_findings(run, Library(data)).communication
    assert communication is not None
    return communication
