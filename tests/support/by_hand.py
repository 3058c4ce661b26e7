"""Analysed runs of hand-built traces."""

from __future__ import annotations

from pathlib import Path

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace

ADDS = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


def analysed(folder: Path, trace: ChromeTrace) -> RunResult:
    """Analyse a hand-built trace."""
    library = Library(DataFolder(folder / "data"))
    run = bring_in(library.folder, [(trace.write(folder / "trace.json"), "trace.json")]).runs[0]
    result = analyse(run, library)
    library.close()
    return result
