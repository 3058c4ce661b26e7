"""Tests of findings about recurrent layers and cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.replay.edits import FasterHost, TimedOps, WithoutHostCause
from tests.support.by_hand import ADDS, FLOAT, analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of
from tests.support.paths import SHARED

STEP_US = 1000
DTYPE_KERNELS = {"float": "ampere_sgemm_128x128_tn", "c10::BFloat16": "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"}


def lstm_cells(dtype: str, *, rows: int, size: int, calls: int = 12) -> ChromeTrace:
    """Return a loop over LSTM cells whose hidden state is ``rows`` × ``size``, two products a call."""
    trace = ChromeTrace(made_for=f"{calls} cells of {rows} × {size} in {dtype}")
    state, weight = [rows, size], [4 * size, size]
    for begin in trace.each_step(4, 8000):
        for call in range(calls):
            at = begin + 10 + 320 * call
            trace.op(
                "aten::lstm_cell", at, at + 280, [state, [state, state], weight, weight], [dtype, "TensorList", dtype, dtype]
            )
            for start in (at + 5, at + 135):
                trace.op("aten::addmm", start, start + 120, [[4 * size], state, weight[::-1]], [dtype] * 3)
                trace.launch((start + 5, start + 10), (start + 12, start + 115), DTYPE_KERNELS[dtype])
    return trace


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_of_a_recurrent_layer_is_captured_by_hand(tmp_path: Path, *, packed: bool) -> None:
    """torch.compile stops at nn.LSTM, so neither the advice nor its code suggests it."""
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        trace.op("aten::lstm", at + 2, at + 908)
        if packed:
            trace.op("aten::_pack_padded_sequence", at + 920, at + 925)
        for start in range(at + 5, at + 905, 10):  # The host takes 10 µs to launch 2 µs of work.
            trace.op("aten::_cudnn_rnn", start, start + 9, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 3, start + 7), (start + 7, start + 9), "LSTM_elementWise_fp")
    launches = of_rule(analysed(tmp_path, trace), "launch-bound")
    assert launches is not None and "captured by hand: torch.compile stops at nn.LSTM" in launches.fix
    assert not any("torch.compile" in change.after for change in launches.changes)
    assert ("pad them to one length first" in launches.risk) is packed


def test_cells_inside_one_call_cost_launches_but_no_operators() -> None:
    # Per remaining kernel the host pays for a launch, not for an operator and a line of Python (76 ms became 7.4 on an
    # H200).
    cells = finding("lstm_cells", "recurrent-cells")
    assert cells is not None
    fast = [edit for edit in cells.edits if isinstance(edit, WithoutHostCause)]
    assert {edit.cause for edit in fast} == {"launch_bound", "python_host"} and all(edit.calls for edit in fast)


def test_the_interval_of_a_recurrent_layer_includes_fp32_products(tmp_path: Path) -> None:
    # cuDNN's default is TF32, but a script may turn it off. Without it, products of this size take more than three times as long.
    cells = of_rule(analysed(tmp_path, lstm_cells("float", rows=256, size=1024)), "recurrent-cells")
    assert cells is not None
    products = next(edit for edit in cells.edits if isinstance(edit, TimedOps))
    assert sum(products.high_ns) > 3 * sum(products.dur_ns) > 3 * sum(products.low_ns)


@pytest.mark.parametrize(
    "sizes", [(64,) * 24, (64, 64, 48, 40) * 6, (17, 25, 12) * 8], ids=("one", "shrinking", "each its own")
)
@pytest.mark.parametrize("between", ["aten::tanh", "aten::index_add_"])
def test_cells_are_time_steps_only_in_sequences(tmp_path: Path, sizes: tuple[int, ...], between: str) -> None:
    # Graphs of 17, 25 and 12 nodes that pass one after the other are not a sequence, and neither are messages between
    # nodes that form the next input.
    trace = ChromeTrace(made_for=f"cells {sizes} {between}")
    for begin in trace.each_step(4, 8000):
        for place, rows in enumerate(sizes):
            at = begin + 10 + 320 * place
            trace.op("aten::gru_cell", at, at + 280, [[rows, 128], [rows, 128]], ["float", "float"])
            for product in range(2):
                start = at + 5 + 130 * product
                trace.op("aten::addmm", start, start + 120, [[384], [rows, 128], [128, 384]], ["float"] * 3)
                trace.launch((start + 5, start + 100), (start + 102, start + 115), "ampere_sgemm_32x128_tn")
            trace.op(between, at + 285, at + 315, [[rows, 128], [rows, 128]], FLOAT)
            trace.launch((at + 287, at + 300), (at + 302, at + 310), ADDS)
    named = of_rule(analysed(tmp_path, trace), "recurrent-cells") is not None
    assert named == (len(set(sizes)) == 1 and between == "aten::tanh")


def test_cells_in_bf16_are_not_predicted_in_tf32(tmp_path: Path) -> None:
    """The sum of products of one weight takes a TF32 kernel twice as long as a bf16 kernel."""
    times = {}
    for dtype in DTYPE_KERNELS:
        trace = lstm_cells(dtype, rows=256, size=1024)
        cells = of_rule(analysed(tmp_path / dtype.split(":")[-1], trace), "recurrent-cells")
        assert cells is not None
        times[dtype] = sum(next(edit for edit in cells.edits if isinstance(edit, TimedOps)).dur_ns)
        assert ("TF32" in cells.prediction_note) is ("TF32" in cells.risk) is (dtype == "float")
    assert 1.5 * times["c10::BFloat16"] < times["float"]


@pytest.mark.parametrize(
    ("size", "dtype", "shares"),
    [(128, "float", (0.05, 0.05, 1.1)), (192, "float", (1.5, 0.05, 2.3)), (256, "float", (1.5, 1.1, 2.3)), (128, "c10::BFloat16", (1.5, 1.1, 2.3))],
)  # fmt: skip
def test_the_host_launches_each_time_step_of_a_wide_layer(
    tmp_path: Path, size: int, dtype: str, shares: tuple[float, float, float]
) -> None:
    """PyTorch runs a small layer in one kernel, but not in bf16.

    The limit is 128, or 192 in the forward pass.
    """
    cells = of_rule(analysed(tmp_path, lstm_cells(dtype, rows=64, size=size, calls=24)), "recurrent-cells")
    assert cells is not None
    host = next(edit for edit in cells.edits if isinstance(edit, FasterHost))
    assert (host.factor, host.low, host.high) == shares


@pytest.mark.skipif(not (SHARED / "recordings").is_dir(), reason="the shared recordings are not here")
def test_one_call_for_the_sequence_comes_before_autocast() -> None:
    """nn.LSTM takes 13.9 ms by a stopwatch, in FP32.

    The products of the loop are most of what autocast would shorten.
    """
    findings = result_of("lstm_hand", SHARED / "recordings").findings
    assert [f.rule for f in findings[:2]] == ["recurrent-cells", "fp32-products"]
    assert findings[0].predicted_step_ms == pytest.approx(13.9, rel=0.15)
