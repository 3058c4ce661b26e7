"""Tests of recomputation from a trace file to the report, by hand."""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace

N = 1024
DIMS, TYPES = [[N, N], [N, N]], ["c10::BFloat16", "c10::BFloat16"]
KERNEL = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
PRODUCT = 2.0 * N**3


def product(trace: ChromeTrace, at: float, **args: int) -> None:
    trace.op("aten::mm", at, at + 20, DIMS, TYPES, **args)
    trace.launch((at + 5, at + 10), (at + 30, at + 60), KERNEL)


def checkpointed_loop(steps: int = 4) -> ChromeTrace:
    """Add steps with one product forward, its recomputation in the checkpoint, and two backward."""
    trace = ChromeTrace()
    for at in trace.each_step(steps, 1000.0, first=3):
        product(trace, at + 10)
        trace.host("cpu_op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", at + 200, at + 700)
        trace.host("cpu_op", "CheckpointFunctionBackward", at + 201, at + 699, **{"Sequence number": 7})
        product(trace, at + 210, **{"Sequence number": 9})
        trace.host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 300, at + 600, **{"Sequence number": 9})
        product(trace, at + 310)
        product(trace, at + 410)
    return trace


def test_recomputed_products_count_in_hfu_and_not_in_mfu(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    try:
        path = checkpointed_loop().write(tmp_path / "loop.json")
        run = ingest_into_runs(library.folder, [(path, path.name)]).runs[0]
        value = {key: entry["value"] for key, entry in report_json(analyse(run, library))["metrics"].items()}
    finally:
        library.close()
    assert value["flops_per_step"] == pytest.approx(3 * PRODUCT)
    assert value["hfu"] / value["mfu"] == pytest.approx(4 / 3)
