"""Tests of the Python functions that take the time of a step without GPU work."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.app.reports import html, text
from sawtooth.app.words.run import first_line
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.host_loops import RECORDED_CALL_MS, analysed, python_loop, recorded_with_stacks


def test_a_function_with_many_short_calls_keeps_its_time(tmp_path: Path) -> None:
    # In each step of 1000 µs ``physics`` makes 1500 calls of sin in 600 µs, one every 400 ns, and ``act`` takes 300 µs.
    # Recording a call takes 280 ns here.
    trace = ChromeTrace(with_stack=1)
    for k in range(3):
        at, number = 1000 * k, 10_000 * k
        trace.step(k, at, at + 1000)
        trace.op("aten::mm", at + 950, at + 990)
        trace.host("python_function", "env.py(4): physics", at, at + 600, **{"Python id": number + 1})
        trace.host("python_function", "env.py(15): act", at + 600, at + 900, **{"Python id": number + 2})
        for call in range(1500):
            begin = at + 0.4 * call
            ids = {"Python id": number + 10 + call, "Python parent id": number + 1}
            trace.host("python_function", "<built-in function sin>", begin, begin + 0.08, **ids)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "env.json")).host
    assert work is not None
    took = dict(work.functions)
    assert took["env.py(15): act"] == pytest.approx(0.3, rel=0.01)
    assert took["env.py(4): physics"] == pytest.approx(0.6 - 1500 * 0.7 * 0.0004, rel=0.02)


def loading_loop(iterator: str) -> ChromeTrace:
    """Add steps of 1000 µs in ``main`` with 800 in the loader, of which 100 in __getitem__ and 600 in pad.

    ``main`` is open when the recording begins, at line 33. ``step`` is first seen at line 22, where it was when the
    recording began, and is defined at line 20; it takes 50 µs.
    """
    trace = ChromeTrace()
    trace.host("python_function", "train.py(33): main", 0, 4000, **{"Python id": 1})
    trace.host("python_function", "train.py(22): step", 0, 40, **{"Python id": 2, "Python parent id": 1})
    for k in range(4):
        at, loader = 1000 * k, 10 * k + 10
        trace.step(k, at, at + 1000)
        trace.host("user_annotation", f"enumerate(DataLoader)#{iterator}.__next__", at + 100, at + 900)
        for number, (name, begin, end, parent) in enumerate(
            [
                ("torch/utils/data/dataloader.py(700): __next__", 100, 900, 1),
                ("data.py(5): __getitem__", 110, 210, loader),
                ("data.py(9): pad", 250, 850, loader),
                ("train.py(20): step", 900, 950, 1),
            ]
        ):
            ids = {"Python id": loader + number, "Python parent id": parent}
            trace.host("python_function", name, at + begin, at + end, **ids)
        trace.op("aten::mm", at + 960, at + 990)
    return trace


def test_loader_code_is_named_if_the_loop_runs_it(tmp_path: Path) -> None:
    """``main`` contains all of it and was open when the recording began.

    The heaviest function below it is named, and main has no line.
    """
    path = loading_loop("_SingleProcessDataLoaderIter").write(tmp_path / "inline.json")
    result = analysed(DataFolder(tmp_path / "data").create(), path)
    work = result.host
    assert work is not None and work.loading_ms == pytest.approx(0.8)
    took = {name: ms + RECORDED_CALL_MS for name, ms in work.functions}
    assert next(iter(took)) == "data.py(9): pad" and took["data.py(9): pad"] == pytest.approx(0.6)
    assert took["data.py(5): __getitem__"] == pytest.approx(0.1)
    assert "train.py: main" in took and "train.py(20): step" in took
    assert not {"train.py(33): main", "train.py(22): step"} & set(took)
    assert "which it loads itself: most of it in pad, data.py line 9" in first_line(result)


def test_waiting_for_workers_is_not_function_time(tmp_path: Path) -> None:
    path = loading_loop("_MultiProcessingDataLoaderIter").write(tmp_path / "workers.json")
    result = analysed(DataFolder(tmp_path / "data").create(), path)
    assert result.host is not None
    took = dict(result.host.functions)
    assert "data.py(9): pad" not in took and sum(took.values()) == pytest.approx(0.17, abs=0.01)
    assert "which it loads itself" not in first_line(result)


def test_python_loop_names_the_function_if_calls_are_recorded(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), python_loop().write(tmp_path / "python.json"))
    work = result.host
    assert work is not None and work.rest_ms == pytest.approx(0.7)
    # The profiler lengthens each recorded call: features makes two, itself and the library's, and main makes one.
    assert dict(work.functions) == pytest.approx(
        {"data.py(4): features": 0.6 - 2 * RECORDED_CALL_MS, "train.py(20): main": 0.1 - RECORDED_CALL_MS}
    )
    assert "most of it in features, data.py line 4" in first_line(result)
    assert "data.py(4): features" in text.text(result) and "data.py(4): features" in html.run_html(result)


def test_calls_of_a_user_function_count_for_it(tmp_path: Path) -> None:
    result = analysed(
        DataFolder(tmp_path / "data").create(), recorded_with_stacks().write(tmp_path / "rl.json"), step_time_ms=0.25
    )
    work = result.host
    assert work is not None and work.step_ms == pytest.approx((1.0, 1.0, 0.95))
    assert [name for name, _ in work.functions] == ["rl/loop.py(5): env_step", "rl/loop.py(18): learn"]
    assert dict(work.functions)["rl/loop.py(5): env_step"] == pytest.approx(0.6 - 2 * RECORDED_CALL_MS)
    assert first_line(result).startswith(
        "90\xa0% of a profiled step lies outside operators: most of it in env_step, rl/loop.py line 5"
    )


def test_python_loop_gets_advice_to_record_calls(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for k in range(4):
        trace.step(k, 1000 * k, 1000 * k + 1000)
        trace.op("aten::mm", 1000 * k + 750, 1000 * k + 950)
    result = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "python.json"))
    assert "`sawtooth run --stacks` names the function" in first_line(result)
