"""GPU work by phase: what was launched in autograd's nodes, in the optimizer's step and by a loss, and what is left; every operation once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.findings.recorded.phases import work_by_phase
from sawtooth.analysis.run.view import open_rank
from sawtooth.app.page.parts import phase_bars
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.findings_of import library, result_of
from tests.support.module_trace import work
from tests.support.pages import opened, run_of, words_of

ROWS = pd.DataFrame(
    [("forward", "matmul", 3.0, 3_000_000), ("forward", "elementwise", 1.0, 0), ("backward", "matmul", 5.0, 5_000_000), ("optimizer", "elementwise", 1.0, 0)],
    columns=["phase", "name", "ms", "tensor_core_ns"],
).assign(total_ns=lambda rows: rows["ms"] * 1e6, share=lambda rows: rows["ms"] / 10)  # fmt: skip


def marked_steps() -> ChromeTrace:
    """Four steps of 1,000 µs: 300 of a product, 50 of a loss, 400 in an autograd node on another thread, 150 in the optimizer's step."""
    trace = ChromeTrace()
    for at in range(0, 4000, 1000):
        trace.thread = 1
        trace.step(3 + at // 1000, at, at + 1000)
        work(trace, "aten::mm", at + 10, (at + 20, at + 320), None)
        work(trace, "aten::mse_loss", at + 20, (at + 320, at + 370), None)
        trace.thread = 2
        trace.op("autograd::engine::evaluate_function: MmBackward0", at + 40, at + 60)
        work(trace, "aten::mm", at + 45, (at + 370, at + 770), None)
        trace.thread = 1
        trace.host("user_annotation", "Optimizer.step#SGD.step", at + 70, at + 90)
        work(trace, "aten::_foreach_add_", at + 75, (at + 770, at + 920), None)
    return trace


def test_each_phase_says_what_it_takes(app_data: DataFolder, tmp_path: Path) -> None:
    test = opened("modules", run_of(app_data, marked_steps().write(tmp_path / "marked.json")))
    text = words_of(test).replace("\u00a0", " ")
    # 400, 300, 150 and 50 of 900 µs
    assert "Backward takes 44 % of GPU work, forward 33 %; which module takes it is not recorded." in text
    drawn = [text.index(f"<span>{name}</span>") for name in ("Forward", "Backward", "Optimizer")]
    assert drawn == sorted(drawn)
    assert all(f'class="st-ptime">{time} µs · {share} %' in text for time, share in ((300, 33), (400, 44), (150, 17)))
    assert "<span>Loss</span>" not in text  # a line in an empty row
    assert "Beside these: the loss 50.0 µs (5.6 %)." in text


def test_where_nothing_is_marked_no_phase_is_said(app_data: DataFolder, tmp_path: Path) -> None:
    text = words_of(opened("modules", run_of(app_data, matmul_loop().write(tmp_path / "loop.json"))))
    assert "<span>Forward</span>" not in text and "Forward takes" not in text


def test_bars_are_as_wide_as_the_longest_phase_allows_and_their_colours_are_named() -> None:
    drawn = phase_bars.bars(ROWS, dark=False)
    assert [(bar.name, bar.width) for bar in drawn] == [("Forward", "80.00%"), ("Backward", "100%"), ("Optimizer", "20.00%")]
    colours = {part.colour for bar in drawn for part in bar.parts}
    assert {one.colour for one in phase_bars.legend(ROWS, dark=False)} == colours and len(colours) == 2


@pytest.mark.parametrize("name", ["gpt_small", "gpt_compiled", "mlp_eager"])
def test_the_phases_of_a_recording_are_all_its_work(name: str) -> None:
    lead = result_of(name).lead
    assert lead is not None
    with open_rank(library(), lead) as view:
        rows = work_by_phase(view)
        total = view.rows("SELECT sum(dur_ns) FROM step_gpu_ops WHERE device = $device AND summed")[0][0]
    assert set(rows["phase"]) >= {"forward", "backward", "optimizer"}
    assert rows["total_ns"].sum() == total
    assert rows["share"].sum() == pytest.approx(1)
