"""Analysed runs of hand-built traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.sampled_loop import write

ADDS = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
FUSED_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<…, at::native::FusedAdamMathFunctor<float, 4> >(…)"
)
FLOAT = ["float", "float"]  # Types of the two inputs of an operator.


def analysed(folder: Path, trace: ChromeTrace) -> RunResult:
    folder.mkdir(parents=True, exist_ok=True)
    return _analysed_files(folder, [trace.write(folder / "trace.json")])


def sampled(folder: Path, **options: Any) -> RunResult:
    """Analyse a loop and its telemetry (``sampled_loop.write``)."""
    return _analysed_files(folder, write(folder, **options))


def _analysed_files(folder: Path, files: list[Path]) -> RunResult:
    library = Library(DataFolder(folder / "data"))
    run = ingest_into_runs(library.folder, [(path, path.name) for path in files]).runs[0]
    result = analyse(run, library)
    library.close()
    return result


def of_rule(result: RunResult, rule: str) -> Finding | None:
    """Return the finding of a rule, or None if it does not fire."""
    assert rule not in {n.rule for n in result.not_checked}
    return next((f for f in result.findings if f.rule == rule), None)


def kernels(trace: ChromeTrace, at: float, count: int, operator: str = "aten::add", each_us: float = 4) -> None:
    """Add ``count`` operators that begin at ``at`` and last ``each_us``, each with one such kernel.

    The kernel starts 2 µs after its launch began.
    """
    for i in range(count):
        start = at + i * each_us
        trace.op(operator, start, start + each_us * 0.9, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + each_us / 4, start + each_us / 2), (start + 3, start + 3 + each_us * 0.95), ADDS)
