"""Tests of the Telemetry screen: averages, the sawtooth and clocks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, ChromeTrace, matmul_loop
from tests.support.pages import charts, numbers, opened, run_of, words_of
from tests.support.telemetry_files import telemetry_file


def test_telemetry_names_the_time_range_of_its_average(loop: str) -> None:
    test = opened("telemetry", loop)
    text = words_of(test)
    named = re.search(r"Utilization averages 68\xa0% from ([\d.]+) to ([\d.]+)\xa0s, where the loop is steady", text)
    assert named is not None, text
    (lanes,) = charts(test)
    ends = [x for shape in lanes["layout"]["shapes"] for x in (shape["x0"], shape["x1"]) if shape["type"] == "rect"]
    for second in named.groups():  # The rest is shaded.
        assert any(x == pytest.approx(float(second), abs=0.01) for x in ends), ends


def test_telemetry_shows_gaps_throttling_and_the_average(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, telemetry_file(tmp_path / "t.jsonl", hole=True))
    test = opened("telemetry", run)
    text = words_of(test)
    assert "Utilization averages" in text
    assert "1 telemetry gap" in text
    assert "power cap" in text
    (lanes,) = charts(test)  # One chart of the whole recording. A second, smaller one would repeat it.
    values = numbers(lanes["data"][0]["y"])
    assert any(v is None or v != v for v in values), "a telemetry gap is drawn as a gap"
    thin = [shape for shape in lanes["layout"]["shapes"] if "domain" in shape["yref"]]  # Throttling, above the clock.
    assert thin and all(shape["y1"] - shape["y0"] < 0.1 for shape in thin)
    axis = thin[0]["yref"].split()[0]
    clock = next(line for line in lanes["data"] if line["yaxis"] == axis)
    top = lanes["layout"][axis.replace("y", "yaxis")]["range"][1]
    assert max(numbers(clock["y"])) < thin[0]["y0"] * top  # No line is hidden.
    headings = [note["text"] for note in lanes["layout"]["annotations"] if "<b>" in note["text"]]
    assert any("throttled by power cap" in heading for heading in headings)  # The bars are explained where they are.
    assert "GPU utilization" in headings[0] and len(headings) == len({line["yaxis"] for line in lanes["data"]})
    heights = [b - a for a, b in (lanes["layout"][f"yaxis{n}"]["domain"] for n in ("", "2"))]
    assert heights[0] > 1.5 * heights[1]  # The lane of the sentence is higher.
    test.session_state[f"telemetry-view-{run}-0"] = (1.0, 2.0)
    strip, lanes = charts(test.run())
    assert strip["layout"]["dragmode"] == "select" and len(lanes["data"][0]["x"]) > 0


def test_a_sawtooth_is_named_and_drawn(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, telemetry_file(tmp_path / "t.jsonl", samples=300))
    test = opened("telemetry", run)
    assert "rises and falls every 1.00\u00a0s, between 0 and 100\u00a0%" in words_of(test)
    low = re.search(r"and is below \d+\xa0% for ([\d.]+)\xa0% of the time", words_of(test))
    assert low is not None and float(low[1]) == pytest.approx(50, abs=2)  # The window has half a second of each level.
    lanes, tooth = charts(test)  # One folded period is below the lanes.
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
    # The slow signal is drawn faint behind it.
    assert first == ["GPU utilization (NVML)", "GPU activity"] and behind == first[:1]
    (label,) = (a for a in layout["annotations"] if "one period" in a["text"])
    (heading,) = (a["text"] for a in layout["annotations"] if a["yref"] == f"{label['yref']} domain")
    assert "GPU activity" in heading and label["yref"] == "y"  # This is the first lane then.


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
    samples = tmp_path / "nvml.jsonl"
    samples.write_text("\n".join(map(json.dumps, lines)))
    run = run_of(app_data, trace.write(tmp_path / "t.json"), samples)
    test = opened("telemetry", run)
    next(b for b in test.button if b.label == "Compare the signals").click().run()
    assert "added to their times" in words_of(test)
    next(b for b in test.button if b.label == "Use this shift").click().run()
    words_of(test)
    offset_ns = app_data.read_manifest(run).telemetry[0].offset_ns
    assert offset_ns is not None
    assert abs(offset_ns - 7 * 10**9) <= 10**8
