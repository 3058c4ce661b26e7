"""Tests of the Work screen: kernels, operators, modules and their table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.app.page import panel
from sawtooth.app.theme import OWNERS
from sawtooth.ingest.schema import DataFolder
from tests.support.module_trace import small_training
from tests.support.pages import charts, numbers, opened, run_of, words_of


def test_work_is_shown_per_step_by_group_and_search(loop: str) -> None:
    test = opened("work", loop)
    text = words_of(test)
    assert "86\u00a0% of GPU time is one kernel: nvjet_sm90" in text
    assert "2 kernels. The GPU works 0.70\u00a0ms of each ≈\u00a01.03\u00a0ms step." in text
    rows = test.dataframe[0].value
    assert list(rows["ms"]) == pytest.approx([0.6, 0.1])
    assert list(rows["launches_per_step"]) == pytest.approx([1, 1])
    assert list(rows["share"]) == pytest.approx([600 / 7, 100 / 7])  # Shown in percent.
    owners = ("tensor_core_compute", "other_compute")  # A bar has the colour of its tile.
    assert [OWNERS[owner].light[1:] in bar for owner, bar in zip(owners, rows["bar"], strict=True)] == [True, True]
    tiles = _tiles(test)
    assert [tiles[f"gemm\u241f{rows['name'].iloc[0]}"], tiles["gemm"]] == pytest.approx([0.6, 0.0])
    test.text_input(key="name").set_value("ELEMENTWISE add").run()
    words_of(test)
    assert len(test.dataframe[0].value) == 1
    test.text_input(key="name").set_value("no such thing").run()
    assert "No name matches" in words_of(test)


def _tiles(test: AppTest) -> dict[str, float]:
    drawn = next(trace for chart in charts(test) for trace in chart["data"] if trace["type"] == "treemap")
    tiles = dict(zip(drawn["ids"], numbers(drawn["values"]), strict=True))
    assert tiles.pop("all") == 0  # The outer frame itself has no time.
    return tiles


def test_the_operator_of_a_kernel_is_shown_with_the_peak_of_the_gpu(loop: str) -> None:
    text = words_of(opened("work", loop))
    # 2 × 1024³ FLOPs at 989.4 TFLOP/s take 2.17 µs; 3 × 2 MiB at 4.8 TB/s 1.31 µs
    assert "aten::mm (1024×1024, 1024×1024) takes 600\u00a0µs; timed kernels of such work take ≈" in text
    assert "and it needs 2.17\u00a0µs at" in text
    assert "Show its longest launch on the timeline" in text
    assert "Works for aten::mm of" in text and "<td>1024×1024, 1024×1024</td>" in text  # not the same name in each row


@pytest.mark.parametrize("group", ["Category", "Operator", "Module"])
def test_every_grouping_of_gpu_time_has_the_same_sum(app_data: DataFolder, tmp_path: Path, group: str) -> None:
    run = run_of(app_data, small_training().write(tmp_path / "t.json"))
    test = opened("work", run, by=group)
    words_of(test)
    assert test.dataframe[0].value["ms"].sum() == pytest.approx(0.2) == sum(_tiles(test).values())


def test_operators_show_time_tensor_cores_and_rates(loop: str) -> None:
    test = opened("work", loop, by="Operator")
    text = words_of(test)
    assert "86\u00a0% of GPU time is aten::mm" in text
    assert text.index("What to do about aten::mm") < text.index("Kernel: ")
    assert "Input shapes: 1024×1024, 1024×1024" in text and "Operator: aten::mm" not in text
    assert "The line of your code that calls it is not recorded. To record it: sawtooth run --stacks" in text
    assert "It takes 600\u00a0µs, 60\u00a0% of a profiled step. There is no finding about it." in text
    row = test.dataframe[0].value.iloc[0]
    assert row["tensor_core_share"] == pytest.approx(100)  # percent
    assert row["tflops"] == pytest.approx(2 * 1024**3 / 600e-6 / 1e12)
    assert row["roof_share"] == pytest.approx(100 * 2 * 1024**3 / 989.4e12 / 600e-6, rel=0.01)
    shapes = opened("work", loop, by="Operator", by_shape="true", row="aten::add 1024×1024, 1024×1024", order="host time")
    assert "What to do about aten::add" in words_of(shapes)  # The row in the address, not the first.
    assert {"1024×1024, 1024×1024"} == set(shapes.dataframe[0].value["shapes"])
    assert shapes.dataframe[0].value["host_ms"].is_monotonic_decreasing


def test_operators_name_the_user_line_that_calls_them(app_data: DataFolder, tmp_path: Path) -> None:
    trace = small_training()
    # A call that began and ended earlier: the other calls were not open when the recording began.
    trace.host("python_function", "train.py(1): config", 1, 3)
    trace.host("python_function", "train.py(7): step", 5, 200)
    trace.host("python_function", "model.py(3): forward", 15, 55)
    run = run_of(app_data, trace.write(tmp_path / "t.json"))
    assert "Called from model.py:3 in forward most" in words_of(opened("work", run, by="Operator", row="aten::addmm"))
    assert "Called from train.py:7 in step" in words_of(opened("work", run, by="Operator", row="aten::_foreach_add_"))


def test_modules_are_nested_tiles_with_their_kernels(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, small_training().write(tmp_path / "t.json"))
    test = opened("work", run, by="Module")
    text = words_of(test)
    assert "75\u00a0% of GPU time is Linear_0" in text and "What to do about Linear_0" in text and "Operators: 2" in text
    assert {tile: round(1000 * ms) for tile, ms in _tiles(test).items()} == {
        "Net_0": 10, "Net_0\u241fLinear_0": 150, "Net_0\u241fLinear_1": 30, "outside modules": 10,
    }  # fmt: skip
    test.toggle(key="by_class").set_value(True).run()
    assert "90\u00a0% of GPU time is Linear" in words_of(test)
    test.text_input(key="name").set_value("linear").run()
    assert list(test.dataframe[0].value["ms"]) == pytest.approx([0.18])


@pytest.mark.parametrize(
    ("group", "words", "code"), [("Module", "Which module the GPU works for is not recorded", "sawtooth run --stacks train.py"), ("Phase", "The trace marks no phases", "with torch.profiler")]
)  # fmt: skip
def test_missing_data_of_a_grouping_is_named_with_advice_to_record_it(loop: str, group: str, words: str, code: str) -> None:
    test = opened("work", loop, by=group)
    assert words in words_of(test) and test.code[0].value.startswith(code)
    assert "86\u00a0% of GPU time is one kernel" in words_of(test)  # The known part is shown, too.


def test_names_of_a_trace_are_not_formulas_in_a_spreadsheet() -> None:
    rows = pd.DataFrame({"name": ["=HYPERLINK(1)", "@x", "-1+1", "gemm", None], "ms": [-1.5, 2.0, 3.0, 4.0, 5.0]})
    assert panel._csv(rows).split() == ["name,ms", "'=HYPERLINK(1),-1.5", "'@x,2.0", "'-1+1,3.0", "gemm,4.0", ",5.0"]


def test_a_table_shows_the_most_important_columns_first(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, small_training().write(tmp_path / "t.json"))
    test = opened("work", run)
    words_of(test)
    first = list(test.dataframe[0].proto.column_order)
    test.toggle(key="columns").set_value(True).run()
    words_of(test)
    everything = list(test.dataframe[0].proto.column_order)
    assert set(first) < set(everything)
    assert len(first) <= 9  # These fit beside the navigation at 1440 pixels.
    bars = [c["type_config"] for c in json.loads(test.dataframe[0].proto.columns).values() if "type_config" in c]
    assert {bar["max_value"] for bar in bars if bar["type"] == "progress"} == {100}  # A bar of 12 % fills 12 % of its place.
