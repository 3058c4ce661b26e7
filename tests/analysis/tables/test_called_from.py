"""Tests of the user's source line of each operator.

In forward it comes from the surrounding Python calls, in backward from those of the forward operator.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.called_from import called_from
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.module_trace import small_training

STEP, FORWARD = "train.py(7): step", "model.py(3): forward"


def called_from_rows(folder: Path, trace: ChromeTrace) -> pd.DataFrame:
    library = Library(DataFolder(folder / "data"))
    run = ingest_into_runs(library.folder, [(trace.write(folder / "t.json"), "t.json")]).runs[0]
    with library.open(run.recordings[0].id) as recording:
        rows = called_from(RankView(recording, 0, 0))
    library.close()
    return rows


def test_an_operator_has_the_user_s_innermost_line_and_backward_has_the_line_of_its_forward(tmp_path: Path) -> None:
    trace = small_training()
    trace.host("python_function", STEP, 5, 200)
    trace.host("python_function", FORWARD, 15, 55)
    # A line of PyTorch is skipped, so that the user's line around it counts.
    trace.host("python_function", "torch/nn/functional.py(9): linear", 24, 40)
    rows = called_from_rows(tmp_path, trace)
    us = {(row["operator"], row["line"]): round(1e3 * row["gpu_ms"]) for row in rows.to_dict("records")}
    assert us["aten::addmm", FORWARD] == 100 and us["aten::addmm", STEP] == 20
    # These ran on a thread without Python calls.
    assert us["AddmmBackward0", FORWARD] == 50 and us["AddmmBackward0", STEP] == 10
    assert us["AddBackward0", FORWARD] == 5
    assert us["aten::_foreach_add_", STEP] == 1
    assert "torch::autograd::AccumulateGrad" not in set(rows["operator"])  # No forward operator has its sequence number.
    assert rows["gpu_ms"].is_monotonic_decreasing


@pytest.mark.parametrize("calls", [(), ("torch/nn/modules/module.py(1): _call_impl",)])
def test_without_user_lines_no_line_is_named(tmp_path: Path, calls: tuple[str, ...]) -> None:
    trace = small_training()
    for name in calls:
        trace.host("python_function", name, 5, 200)
    rows = called_from_rows(tmp_path, trace)
    assert rows.empty and list(rows) == ["operator", "line", "gpu_ms", "calls"]
