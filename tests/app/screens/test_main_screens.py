"""Tests of Verdict, Work, Telemetry and others, with data and with each part missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.screen_sums import sums_file
from sawtooth.app.page import panel
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, ChromeTrace, matmul_loop
from tests.support.module_trace import small_training
from tests.support.pages import charts, headline_of, opened, run_of, staircase_of, words_of
from tests.support.paths import RECORDINGS
from tests.support.sent_steps import written_out
from tests.support.telemetry_files import telemetry_file

SCREENS = ("verdict", "timeline", "idle", "work", "efficiency", "ranks", "memory", "telemetry")


@pytest.fixture
def loop(app_data: DataFolder, tmp_path: Path) -> str:
    """Return a run with telemetry whose GPU works 700 of every 1000 µs, 600 on tensor cores."""
    trace = matmul_loop().write(tmp_path / "loop.json")
    # 40 % and 100 % in turn: 70 % on average, as the trace says, so that the profiled steps represent the run
    told = telemetry_file(tmp_path / "telemetry.jsonl", start_ns=BASE_NS - 3_000_000_000, low=40)
    return run_of(app_data, trace, told)


def test_verdict_shows_the_busy_share_of_a_step(loop: str) -> None:
    test = opened("verdict", loop)
    text = words_of(test)
    # of the run's step, 702 of 1,027 µs by telemetry; the profile's 70 % of 1.00 ms stands beside it in small print
    assert "The GPU is busy 68\u00a0% of each ≈\u00a01.03\u00a0ms step" in text
    assert "70\u00a0% as profiled" in text
    metrics = {m.label: m.value for m in test.metric}
    assert metrics["Step time"] == "1.03\u00a0ms"
    assert metrics["Tensor-core time"] == "86\u00a0%"  # 600 of 700 µs
    assert metrics["GPU busy"] == "68\u00a0%"
    bar, minute = charts(test)[:2]
    drawn = {trace["name"]: trace for trace in bar["data"]}
    assert sum(float(_numbers(trace["x"])[0]) for trace in drawn.values()) == pytest.approx(
        1.027, abs=1e-3
    )  # the parts are the run's step
    assert minute["data"][0]["line"]["shape"] == "vh"  # a sample describes the window before it


@pytest.mark.parametrize("screen", ["timeline", "work", "efficiency"])
def test_a_screen_stores_missing_sums_of_a_large_recording(
    screen: str, loop: str, app_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawtooth.analysis.derive.screen_sums.FEW_EVENTS", 0)
    (trace,) = app_data.read_manifest(loop).traces
    assert words_of(opened(screen, loop))
    assert sums_file(ensure_derived(app_data, trace.id)).exists()


def test_an_address_with_selected_changes_opens_with_them(app_data: DataFolder) -> None:
    run = run_of(app_data, RECORDINGS / "mlp_eager" / "trace.json.gz", RECORDINGS / "mlp_eager" / "nvml.jsonl")
    drawn = staircase_of(opened("verdict", run))
    assert drawn is not None and drawn["choice"] == drawn["first"] == 3 and drawn["panorama"]["step"]
    names = [change["name"] for change in drawn["changes"]]
    for fixes, choice in ((drawn["changes"][1]["rule"], 2), ("none", 0), ("no-such-rule", 3)):
        test = opened("verdict", run, fixes=fixes, open="1")
        asked = staircase_of(test)
        assert asked is not None and (asked["choice"], asked["open"]) == (choice, 1)
        assert (names[1] in headline_of(test)) == (choice == 2)


def _numbers(values: object) -> list[float]:
    """Return the numbers that Plotly was given, as a list or packed."""
    if isinstance(values, dict):
        import base64

        import numpy as np

        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).tolist()
    return list(values)  # type: ignore[call-overload]


def test_work_is_shown_per_step_by_group_and_search(loop: str) -> None:
    test = opened("work", loop)
    text = words_of(test)
    assert "86\u00a0% of GPU time is one kernel: nvjet_sm90" in text
    assert "2 kernels. The GPU works 0.70\u00a0ms of each ≈\u00a01.03\u00a0ms step." in text
    rows = test.dataframe[0].value
    assert list(rows["ms"]) == pytest.approx([0.6, 0.1])
    assert list(rows["launches_per_step"]) == pytest.approx([1, 1])
    assert list(rows["share"]) == pytest.approx([600 / 7, 100 / 7])  # shown in percent
    tiles = _tiles(test)
    assert [tiles[f"gemm\u241f{rows['name'].iloc[0]}"], tiles["gemm"]] == pytest.approx([0.6, 0.0])
    test.text_input(key="name").set_value("ELEMENTWISE add").run()
    words_of(test)
    assert len(test.dataframe[0].value) == 1
    test.text_input(key="name").set_value("no such thing").run()
    assert "No name matches" in words_of(test)


def test_work_hides_times_of_records_that_failed_a_check(app_data: DataFolder, tmp_path: Path) -> None:
    trace = matmul_loop(5)
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    trace.events = [event for event in trace.events if event not in kernels[::2]]  # half of the records are missing
    test = opened("work", run_of(app_data, trace.write(tmp_path / "t.json")))
    text = words_of(test)
    assert "GPU times of this recording cannot be trusted." in text
    assert "records are missing" in text and not len(test.dataframe) and not charts(test)


def _tiles(test: AppTest) -> dict[str, float]:
    """Return the time of each tile of the treemap by its id."""
    drawn = next(trace for chart in charts(test) for trace in chart["data"] if trace["type"] == "treemap")
    tiles = dict(zip(drawn["ids"], _numbers(drawn["values"]), strict=True))
    assert tiles.pop("all") == 0  # the frame around all has no time of its own
    return tiles


def test_the_operator_of_a_kernel_is_shown_with_the_peak_of_the_gpu(loop: str) -> None:
    text = words_of(opened("work", loop))
    # 2 × 1024³ FLOPs at 989.4 TFLOP/s take 2.17 µs; 3 × 2 MiB at 4.8 TB/s 1.31 µs
    assert "aten::mm (1024×1024, 1024×1024) takes 600\u00a0µs; timed kernels of such work take ≈" in text
    assert "and it needs 2.17\u00a0µs at" in text
    assert "Show its longest launch on the timeline" in text


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
    assert text.index("What to do about aten::mm") < text.index("Kernels: 1")
    assert "The line of your code that calls it is not recorded. To record it: sawtooth run --stacks" in text
    assert "No finding is about it: 600\u00a0µs, 60\u00a0% of a profiled step." in text
    row = test.dataframe[0].value.iloc[0]
    assert row["tensor_core_share"] == pytest.approx(100)  # percent
    assert row["tflops"] == pytest.approx(2 * 1024**3 / 600e-6 / 1e12)
    assert row["roof_share"] == pytest.approx(100 * 2 * 1024**3 / 989.4e12 / 600e-6, rel=0.01)
    shapes = opened("work", loop, by="Operator", by_shape="true", row="aten::add 1024×1024, 1024×1024", order="host time")
    assert "What to do about aten::add" in words_of(shapes)  # the row of the address, not the first
    assert {"1024×1024, 1024×1024"} == set(shapes.dataframe[0].value["shapes"])
    assert shapes.dataframe[0].value["host_ms"].is_monotonic_decreasing


def test_operators_name_the_user_line_that_calls_them(app_data: DataFolder, tmp_path: Path) -> None:
    trace = small_training()
    trace.host(
        "python_function", "train.py(1): config", 1, 3
    )  # ended before: the others were not open when the recording began
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
    ("group", "words", "code"), [("Module", "Which module the GPU works for is not recorded.", "sawtooth run --stacks train.py"), ("Phase", "The trace marks no phases.", "with torch.profiler")]
)  # fmt: skip
def test_missing_data_of_a_grouping_is_named_with_advice_to_record_it(loop: str, group: str, words: str, code: str) -> None:
    test = opened("work", loop, by=group)
    assert words in words_of(test) and test.code[0].value.startswith(code)
    assert "86\u00a0% of GPU time is one kernel" in words_of(test)  # and what is known without it


def test_telemetry_names_the_time_range_of_its_average(loop: str) -> None:
    test = opened("telemetry", loop)
    text = words_of(test)
    named = re.search(r"Utilization averages 68\xa0% from ([\d.]+) to ([\d.]+)\xa0s, where the loop is steady", text)
    assert named is not None, text
    (lanes,) = charts(test)
    ends = [x for shape in lanes["layout"]["shapes"] for x in (shape["x0"], shape["x1"]) if shape["type"] == "rect"]
    for second in named.groups():  # what is beside it is shaded
        assert any(x == pytest.approx(float(second), abs=0.01) for x in ends), ends


def test_telemetry_shows_gaps_throttling_and_the_average(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, telemetry_file(tmp_path / "t.jsonl", hole=True))
    test = opened("telemetry", run)
    text = words_of(test)
    assert "Utilization averages" in text
    assert "1 telemetry gap" in text
    assert "power cap" in text
    (lanes,) = charts(test)  # of the whole recording: a second, smaller one would repeat it
    values = _numbers(lanes["data"][0]["y"])
    assert any(v is None or v != v for v in values), "a hole is drawn as a hole"
    assert len(lanes["layout"]["shapes"]) >= 1  # the throttle band
    headings = [note["text"] for note in lanes["layout"]["annotations"] if "on average" in note["text"]]
    assert "GPU utilization" in headings[0] and len(headings) == len({line["yaxis"] for line in lanes["data"]})
    heights = [b - a for a, b in (lanes["layout"][f"yaxis{n}"]["domain"] for n in ("", "2"))]
    assert heights[0] > 1.5 * heights[1]  # the lane that the sentence speaks of
    test.session_state[f"telemetry-view-{run}-0"] = (1.0, 2.0)
    strip, lanes = charts(test.run())
    assert strip["layout"]["dragmode"] == "select" and len(lanes["data"][0]["x"]) > 0


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_telemetry_alone(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    text = words_of(opened(name, run_of(app_data, telemetry_file(tmp_path / "t.jsonl"))))
    if name != "telemetry":
        assert "telemetry and no trace" in text, text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_a_trace_of_the_host_only(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    text = words_of(opened(name, run_of(app_data, trace.write(tmp_path / "cpu.json"))))
    if name != "telemetry":
        assert "No GPU work is recorded" in text
        assert "Nothing of this kind is in view" not in text  # the timeline opens on the list that holds something
        assert "ProfilerActivity.CUDA" in "\n".join(code.value for code in opened(name, _only_run(app_data)).code)


def _only_run(data: DataFolder) -> str:
    return data.manifests()[0].id


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_no_steps(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = matmul_loop()
    trace.events = [e for e in trace.events if not e["name"].startswith("ProfilerStep")]
    text = words_of(opened(name, run_of(app_data, trace.write(tmp_path / "t.json"))))
    if name == "timeline":
        assert "The GPU is busy" in text
    if name == "verdict":
        assert "no steps" in text
        assert "of the recorded time" in text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_no_shapes(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = matmul_loop()
    for event in trace.events:
        event["args"].pop("Input Dims", None)
        event["args"].pop("Input type", None)
    trace.top["record_shapes"] = 0
    run = run_of(app_data, trace.write(tmp_path / "t.json"))
    words_of(opened(name, run))
    if name == "work":
        assert "The trace has no shapes" in words_of(opened(name, run, by="Operator", by_shape="true"))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_hostile_names_stay_text(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    evil = '<img src=x onerror=alert(1)>![](http://evil.example/x.png) %{x} <a href="http://evil.example">k</a>'
    trace = matmul_loop()
    for event in trace.events:
        if event["cat"] in ("kernel", "cpu_op"):
            event["name"] = evil
    run = run_of(app_data, trace.write(tmp_path / "t.json"))
    test = opened(name, run)
    words_of(test)
    for element in test.main:
        body = str(getattr(element.proto, "body", ""))
        assert "<img src=x" not in body
        assert '<a href="http' not in body, "links of our own stay on this server"
    for chart in charts(test):
        assert "<img" not in json.dumps(chart)
        assert "<a href" not in json.dumps(chart)
        assert not any("evil" in str(trace.get("hovertemplate")) for trace in chart["data"])


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_every_chart_has_a_text_alternative(loop: str, name: str) -> None:
    test = opened(name, loop)
    for chart in test.get("plotly_chart"):
        assert len(chart.proto.alt) > 20


def test_timeline_follows_the_address(loop: str) -> None:
    whole = opened("timeline", loop)
    # seen whole, the sentence is the Verdict's; a part of the recording has its own
    assert "The GPU works 0.70\u00a0ms of each ≈\u00a01.03\u00a0ms step.</h1>" in words_of(whole)
    # The second step as the device has it: its end and the start of the next lie at 1740 and 2740 µs of the trace.
    near = opened("timeline", loop, t0="1.74", t1="2.74")
    assert "The GPU is busy 70\u00a0% of the 1.00\u00a0ms in view" in words_of(near)
    data = picture(near)
    assert data["place"] == {"t0": "1.74", "t1": "2.74"}
    assert [lane["label"] for lane in data["tracks"][0]["lanes"]][:2] == ["Lost time", "GPU stream 7"]
    assert (1_740_000, 2_740_000) in [(start, end) for start, end, *_ in written_out(data["steps"])]
    assert {"tensor_core_compute", "other_compute"} <= set(data["kinds"]["gpu"])


def picture(test: AppTest) -> dict[str, Any]:
    """Return what the page passes to the timeline's component."""
    (proto,) = (element.proto for element in test.main if "/timeline" in str(element.proto) and "tracks" in str(element.proto))
    return dict(json.loads(proto.json))


@pytest.mark.parametrize(
    "query", [{"t0": "nan", "t1": "x"}, {"t0": "9e99", "t1": "1e99"}, {"t0": "5", "t1": "-5"}, {"t0": "1"}]
)
def test_an_invalid_range_still_shows_the_timeline(loop: str, query: dict[str, str]) -> None:
    assert "The GPU works" in words_of(opened("timeline", loop, **query))


def test_telemetry_of_another_time_is_shown_next_to_the_lanes(app_data: DataFolder, tmp_path: Path) -> None:
    told = telemetry_file(tmp_path / "t.jsonl", start_ns=BASE_NS - 60_000_000_000)
    run = run_of(app_data, matmul_loop().write(tmp_path / "t.json"), told)
    text = words_of(opened("timeline", run))
    assert "before the trace" in text


def test_telemetry_of_the_same_time_is_aligned_with_the_lanes(loop: str) -> None:
    test = opened("timeline", loop)
    assert "not at the same time" not in words_of(test)
    assert {line["unit"] for line in picture(test)["lines"]} >= {"%"}


def test_a_link_into_another_run_keeps_its_place(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    # If a session's timeline last showed another run, the link's t0 and t1 were dropped, and the whole recording was
    # shown.
    test = opened("timeline", run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json")))
    link = {"run": loop, "t0": "1.74", "t1": "2.74"}
    for key, value in link.items():
        test.query_params[key] = value
    words_of(test.run())
    assert {name: test.query_params[name] for name in link} == link


def test_runs_that_appear_in_the_list_open_no_page(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    """The browser reports the server's change of the list late.

    Right after an upload this opened the run without a request.
    """
    other = run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json"))
    test = opened("runs", loop)
    del test.query_params["run"]
    test.session_state["run"] = other
    assert "Live, from the training machine" in words_of(test.selectbox(key="run_choice").set_value(other).run())


def test_another_run_selected_on_the_timeline_is_shown_completely(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    other = run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json"))
    test = opened("timeline", loop, t0="1.74", t1="2.74")
    assert "The GPU works" in words_of(test.selectbox(key="run_choice").set_value(other).run())
    assert test.query_params["run"] == other
    assert "t0" not in test.query_params


def test_without_external_links_perfetto_is_not_offered(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawtooth.app.settings import settings

    monkeypatch.setenv("SAWTOOTH_NO_EXTERNAL", "1")
    settings.cache_clear()
    test = opened("timeline", loop)
    words_of(test)
    assert not [e for e in test.main if "perfetto" in str(e.proto).lower()]
    monkeypatch.delenv("SAWTOOTH_NO_EXTERNAL")
    settings.cache_clear()
    assert [e for e in opened("timeline", loop).main if "perfetto" in str(e.proto).lower()]


def test_idle_names_the_largest_cause_and_the_longest_wait(loop: str) -> None:
    test = opened("idle", loop)
    text = words_of(test)
    # 327 of the run's 1,027 µs; the GPU works the other 700. What is profiled stands small beside it
    assert "≈\u00a0327\u00a0µs of each 1.03\u00a0ms step is lost" in text
    assert text.count("as profiled") >= 1 and "Together" in text
    rows = test.dataframe[0].value  # the table behind the chart
    assert rows["recorded_ms"].sum() == pytest.approx(0.3)  # 300 of 1000 µs
    waits = next(d.value for d in test.dataframe if "evidence" in d.value)
    assert waits["ms"].is_monotonic_decreasing
    assert waits["ms"].sum() == pytest.approx(0.9)  # three counted steps
    assert "Show on the timeline" in text


def test_efficiency_uses_the_step_of_idle_and_verdict(loop: str) -> None:
    test = opened("efficiency", loop)
    assert "dense 16-bit peak" in words_of(test)
    parts = next(d.value for d in test.dataframe if "left_share" in d.value).set_index("part")["ms"]
    # 1 ms as profiled is 1.027 ms by telemetry: 700 µs of kernels, of which 600 multiply; 2 × 1024³ FLOPs need 2.2 µs of 989.4 TFLOP/s
    assert parts.sum() == pytest.approx(1.027, rel=1e-3)
    assert parts["The GPU is idle"] == pytest.approx(0.327, rel=1e-2) and parts["Other kernels"] == pytest.approx(0.1, rel=1e-2)
    assert parts["At the peak (MFU)"] == pytest.approx(2 * 1024**3 / 989.4e12 * 1e3, rel=0.01)
    assert "\u2248\u00a0327\u00a0µs of each 1.03\u00a0ms step is lost" in words_of(opened("idle", loop))


def test_facts_from_the_viewer_are_stored_with_the_run(loop: str, app_data: DataFolder) -> None:
    test = opened("efficiency", loop)
    field = next(n for n in test.number_input if n.label == "FLOPs per step")
    field.set_value(1e12)
    next(b for b in test.button if b.label == "Save").click().run()
    words_of(test)
    assert app_data.read_manifest(loop).facts.flops_per_step == 1e12
    assert "Achieved: ≈\u00a0974\u00a0TFLOP/s." in words_of(opened("efficiency", loop))  # 10¹² in 1.027 ms


def test_a_sawtooth_is_named_and_drawn(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, telemetry_file(tmp_path / "t.jsonl", samples=300))
    test = opened("telemetry", run)
    assert "rises and falls every 1.00\u00a0s, between 0 and 100\u00a0%" in words_of(test)
    low = re.search(r"and is low for ([\d.]+)\xa0% of the time", words_of(test))
    assert low is not None and float(low[1]) == pytest.approx(50, abs=2)  # half a second of each
    lanes, tooth = charts(test)  # one folded period stands below the lanes
    assert tooth["layout"]["yaxis"]["title"]["text"] == "%" and len({line["yaxis"] for line in lanes["data"]}) > 1
    assert any("one period" in a["text"] for a in lanes["layout"]["annotations"])


def test_the_period_is_drawn_in_the_signal_that_shows_it_best(app_data: DataFolder, tmp_path: Path) -> None:
    """NVML's slow utilization lags the counters by a fraction of a second.

    A band in its panel would miss the sawtooth's rise.
    """
    path = telemetry_file(tmp_path / "t.jsonl", samples=300)
    head, *lines = map(json.loads, path.read_text().splitlines())
    path.write_text("\n".join(map(json.dumps, [head, *({**line, "gpm_graphics": line["gpu_util"]} for line in lines)])))
    lanes, _ = charts(opened("telemetry", run_of(app_data, path)))
    layout = lanes["layout"]
    first = [line["name"] for line in lanes["data"] if line["yaxis"] == "y"]
    behind = [line["name"] for line in lanes["data"] if line.get("opacity", 1) < 1]
    assert first == ["GPU utilization (NVML)", "GPU activity"] and behind == first[:1]  # the slow one faint behind it
    (label,) = (a for a in layout["annotations"] if "one period" in a["text"])
    (heading,) = (a["text"] for a in layout["annotations"] if a["yref"] == f"{label['yref']} domain")
    assert "GPU activity" in heading and label["yref"] == "y"  # which is then the first lane


def test_one_rank_of_several_has_advice_to_add_the_others(app_data: DataFolder, tmp_path: Path) -> None:
    trace = matmul_loop()
    trace.top["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 8}
    test = opened("ranks", run_of(app_data, trace.write(tmp_path / "rank0.json")))
    assert "trace of one of 8 ranks only" in words_of(test)
    assert "sawtooth ingest rank" in test.code[0].value


def test_a_run_on_one_gpu_has_no_advice_on_ranks(loop: str) -> None:
    text = words_of(test := opened("ranks", loop))
    assert "trains on one GPU" in text
    assert "missing" not in text and not test.code


def test_a_late_rank_of_two_is_named(app_data: DataFolder, tmp_path: Path) -> None:
    files = []
    for rank, comm_us in ((0, 200), (1, 50)):
        trace = matmul_loop()
        trace.top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
        for k in range(4):
            at = k * 1000
            trace.launch(
                (at + 92, at + 95),
                (at + 745, at + 745 + comm_us),
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)",
            )
        files.append(trace.write(tmp_path / f"rank{rank}.json"))
    test = opened("ranks", run_of(app_data, *files))
    # Rank 0 spends 200 µs a step in the collective, rank 1 only 50: rank 0 waits 150 µs for rank 1.
    text = words_of(test)
    # Neither its kernels nor its host take longer: it is named as late under the profiler, and not as the job's straggler.
    assert "Under the profiler, rank 1 is 150\u00a0µs behind the others; without it, the difference is not known." in text
    assert "In the profile rank 1 takes longest by itself" in text
    assert "the profiler slows one host more than another" in text
    assert "Rank 0 waits most" in text
    verdict = words_of(opened("verdict", _only_run(app_data)))
    assert "Under the profiler, rank 1 is 150\u00a0µs behind the others" in verdict


def test_local_telemetry_needs_its_time_zone_to_be_aligned(app_data: DataFolder, tmp_path: Path) -> None:
    from datetime import UTC, datetime

    begins = BASE_NS // 10**9 - 3 + 3600
    local = [datetime.fromtimestamp(begins + k / 10, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3] for k in range(60)]
    log = tmp_path / "smi.csv"
    log.write_text("timestamp, utilization.gpu [%]\n" + "".join(f"{t}, {100 * (k // 5 % 2)} %\n" for k, t in enumerate(local)))
    run = run_of(app_data, matmul_loop().write(tmp_path / "loop.json"), log)
    test = opened("telemetry", run)
    text = words_of(test)
    assert "not aligned with the trace: its times are local and have no time zone" in text
    assert "if its time zone is UTC+1." in text
    assert "not aligned with the trace" in words_of(opened("timeline", run))
    ref = app_data.read_manifest(run).telemetry[0]
    test.text_input(key=f"zone-{ref.id}").set_value("Mars")
    assert "is not a time zone" in words_of(submitted(test))
    test.text_input(key=f"zone-{ref.id}").set_value("+01:00")
    assert "−3,600.000\u00a0s are added" in words_of(submitted(test))
    assert app_data.read_manifest(run).telemetry[0].offset_ns == -3600 * 10**9
    assert "not aligned with the trace" not in words_of(opened("timeline", run))


def submitted(test: AppTest) -> AppTest:
    return next(b for b in test.button if b.label == "Save").click().run()


def test_a_clock_shift_found_in_the_signals_is_offered_and_stored(app_data: DataFolder, tmp_path: Path) -> None:
    import random

    draw, kernels, at = random.Random(3), [], 0
    while at < 8_000_000:  # µs: eight seconds of irregular work
        length = draw.randint(30_000, 400_000)
        kernels.append((at, length))
        at += length + draw.randint(20_000, 600_000)
    trace = ChromeTrace()
    for start, length in kernels:
        trace.launch((start, start), (start, start + length), "nvjet_sm90_tst")
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    for k in range(-100, 300):
        a, b = k * 100_000, (k + 1) * 100_000
        busy = sum(max(0, min(s + n, b) - max(s, a)) for s, n in kernels) / 100_000
        lines.append(
            {"t_ns": BASE_NS + b * 1000 - 7 * 10**9, "gpm_graphics": 100 * busy if 0 <= a < at else draw.randint(0, 100)}
        )
    told = tmp_path / "nvml.jsonl"
    told.write_text("\n".join(map(json.dumps, lines)))
    run = run_of(app_data, trace.write(tmp_path / "t.json"), told)
    test = opened("telemetry", run)
    next(b for b in test.button if b.label == "Compare the signals").click().run()
    assert "added to their times" in words_of(test)
    next(b for b in test.button if b.label == "Use this shift").click().run()
    words_of(test)
    kept = app_data.read_manifest(run).telemetry[0].offset_ns
    assert kept is not None
    assert abs(kept - 7 * 10**9) <= 10**8


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
    assert len(first) <= 9  # what fits beside the navigation at 1440 pixels
    bars = [c["type_config"] for c in json.loads(test.dataframe[0].proto.columns).values() if "type_config" in c]
    assert {bar["max_value"] for bar in bars if bar["type"] == "progress"} == {100}  # a bar of 12 % fills 12 % of its place


def test_idle_shows_place_and_advice_for_each_cause(loop: str) -> None:
    text = words_of(opened("idle", loop))
    assert "The GPU waits for" in text and "Most of it in" in text and "What helps" in text
    assert "(100\u00a0%)" in text  # all of it in one place


def test_a_wait_in_a_loader_has_its_common_name() -> None:
    from sawtooth.app.words import causes

    assert causes.place("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") == "the DataLoader's next batch"
    assert causes.place("aten::copy_") == "aten::copy_"
    assert {causes.helps(owner, None) for owner in ("exposed_comm", "exposed_memcpy", "idle")}.isdisjoint({""})


def test_waits_name_the_place_first(loop: str) -> None:
    test = opened("idle", loop)
    waits = next(d for d in test.dataframe if "evidence" in d.value)
    assert list(waits.proto.column_order)[:2] == ["ms", "label"]
    assert "operator" not in waits.proto.column_order
    assert "Ended by: " in words_of(test)


def test_events_without_measurements_are_not_shown(app_data: DataFolder, tmp_path: Path) -> None:
    trace = small_training()
    trace.events.append({"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1.0})
    assert "not stored" not in words_of(opened("verdict", run_of(app_data, trace.write(tmp_path / "arrow.json"))))
    trace.events.append({"ph": "X", "name": "aten::add", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 2.0, "dur": -5})
    text = words_of(opened("verdict", run_of(app_data, trace.write(tmp_path / "negative.json"))))
    assert "1 thing to know about this recording" in text and "negative duration" in text and "not stored" not in text


def test_efficiency_without_steps_says_what_is_missing_and_times_of_the_recording(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.op("aten::mm", 10, 60, [[1024, 1024], [1024, 1024]], ["float", "float"])
    trace.launch((27, 30), (40, 640), "sgemm_128x64_nn")
    test = opened("efficiency", run_of(app_data, trace.write(tmp_path / "t.json")))
    text = words_of(test)
    assert "Steps are not marked, so there is no time of a step." in text and "profiler.step()" in test.code[0].value
    assert "run 600\u00a0µs of the recorded time without tensor cores" in text


def test_operators_that_only_move_data_have_only_the_memory_roof(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 1000)
    trace.op("aten::add", 10, 60, [[1024, 1024], [1024, 1024]], ["float", "float"])
    trace.launch((27, 30), (40, 640), "elementwise_add")
    assert "aten::add could gain most" in words_of(opened("efficiency", run_of(app_data, trace.write(tmp_path / "t.json"))))
