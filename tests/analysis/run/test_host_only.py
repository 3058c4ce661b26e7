"""Tests of runs without GPU work: the parts of the host's time, computed by hand.

One sentence states everything that cannot be known.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.findings.checking import check_host
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.host import HostLoad
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.step_marks import Mark, by_marks
from sawtooth.app.cli import cli
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.reports import html, text
from sawtooth.app.reports.brief import lines
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import setup_changes, step_parts
from sawtooth.app.words.headline import below, headline
from sawtooth.app.words.run import first_line
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.prepared import prepared

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loop(steps: int = 4) -> ChromeTrace:
    """Add steps of 1000 µs: 600 in the loader, 300 in mm and 100 in neither.

    100 of the loader's are in an operator, and 50 of mm's are in its child.
    """
    trace = ChromeTrace()
    for k in range(steps):
        at = 1000 * k
        trace.thread = 1
        trace.step(k, at, at + 1000)
        trace.host("user_annotation", LOADER, at, at + 600)
        trace.op("aten::stack", at + 100, at + 200)
        trace.op("aten::mm", at + 620, at + 920)
        trace.op("aten::empty", at + 630, at + 680)
        trace.thread = 2
        trace.op("aten::copy_", at + 10, at + 50)
    return trace


def analysed(data: DataFolder, path: Path, **facts: float) -> RunResult:
    manifest = prepared(data, path, name="on the host")
    if facts:
        manifest = register_run(data, manifest.recordings, "on the host", {}, facts=UserFacts(**facts))
    library = Library(data)
    try:
        return result_of(manifest, library)
    finally:
        library.close()


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    return analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "host.json"))


def test_the_parts_of_a_step_are_loading_operators_and_the_rest(result: RunResult) -> None:
    work = result.host
    assert work is not None and work.steps == 3  # the times between four ends
    assert (work.loading_ms, work.operators_ms, work.rest_ms) == pytest.approx((0.6, 0.3, 0.1))
    assert result.metrics["best_step_time_ms"].value == pytest.approx(1.0)
    assert result.metrics["best_step_time_ms"].trust == "caution"  # profiled


def test_collectives_on_the_cpu_cover_time_outside_operators(tmp_path: Path) -> None:
    # Two threads of gloo reduce for 700 µs of each 1000 µs step, 600 of them together; the loop multiplies for 200 µs before.
    trace = ChromeTrace()
    for k in range(4):
        at = 1000 * k
        trace.thread = 1
        trace.step(k, at, at + 1000)
        trace.op("aten::mm", at + 10, at + 210)
        for trace.thread, begin in ((2, 250), (3, 300)):
            trace.host("user_annotation", "gloo:all_reduce", at + begin, at + begin + 650)
    result = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "gloo.json"))
    work = result.host
    assert work is not None
    assert (work.operators_ms, work.rest_ms, work.communication_ms) == pytest.approx((0.2, 0.8, 0.7))
    assert first_line(result).startswith(
        "70\u00a0% of each ≈\u00a01.00\u00a0ms step is communication on the CPU, gloo:all_reduce first"
    )


def test_time_between_profiler_cycles_is_in_no_step(tmp_path: Path) -> None:
    """The schedule waits 50 ms between steps 3 and 100, and none of it counts for a step of 1 ms.

    An operator runs in that gap.
    """
    trace = python_loop()
    for k in range(4):
        at = 54_000 + 1000 * k
        trace.step(100 + k, at, at + 1000)
        trace.host("python_function", "data.py(4): features", at, at + 700, **{"Python id": 100 + k})
        trace.op("aten::sum", at + 150, at + 250)
        trace.op("aten::mm", at + 750, at + 950)
    trace.op("aten::mm", 30_000, 40_000)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "cycles.json")).host
    assert work is not None and work.steps == 6
    assert (work.operators_ms, work.rest_ms) == pytest.approx((0.3, 0.7))
    assert dict(work.functions)["data.py(4): features"] == pytest.approx(
        0.6 - 1.5 * RECORDED_CALL_MS
    )  # half of the steps call a library in it
    assert {operator.name: operator.calls for operator in work.operators} == pytest.approx({"aten::sum": 1, "aten::mm": 1})


def sparsely_marked(marks: dict[int, str], recorded: range, pause_after: int = -1) -> ChromeTrace:
    """Record steps of 10 ms, some of them with ``marks``; step 3 takes 40 ms, a pause 300 ms."""
    trace, at = ChromeTrace(), 0.0
    for k in range(12):
        ends = at + (40_000 if k == 3 else 10_000)
        if k in marks:
            trace.host("user_annotation", marks[k], at, ends)
        for place in range(24 if k in recorded else 0):
            trace.op(f"aten::op{place}", at + 100 + 300 * place, at + 350 + 300 * place)
        at = ends + (300_000 if k == pause_after else 0)
    return trace


def numbered(*steps: int) -> dict[int, str]:
    return {k: f"ProfilerStep#{k}" for k in steps}


@pytest.mark.parametrize(
    ("trace", "steps_ms", "unmarked"),
    [
        (sparsely_marked(numbered(0, 1, 2, 4, 5), range(6)), [10, 10, 40, 10, 10], False),  # the mark of the slow step is lost
        (sparsely_marked(numbered(0, 1, 2, 5, 6, 7), range(8)), [10, 10, 10, 10], True),  # … and that of the next step
        (sparsely_marked(numbered(0, 3, 6), range(0, 7, 3)), [10, 40, 10], False),  # the schedule has one active step a cycle
        (sparsely_marked(numbered(*range(4)), range(4), pause_after=1), [10, 40], True),
        (sparsely_marked({0: "train", 4: "train", 8: "train"}, range(12)), [10, 10, 40, *[10] * 5], False),  # each fourth step
    ],
    ids=["one-lost", "two-lost", "one-a-cycle", "pause", "ranges"],
)
def test_steps_with_few_marks(tmp_path: Path, trace: ChromeTrace, steps_ms: list[float], unmarked: bool) -> None:
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "sparse.json")).host
    assert work is not None and list(work.step_ms) == pytest.approx(steps_ms, rel=0.04)
    assert any("without a step mark" in note for note in work.step.notes) == unmarked


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


def test_operators_have_their_own_time_and_threads_their_names(result: RunResult) -> None:
    work = result.host
    assert work is not None
    own = {operator.name: (operator.ms, operator.calls) for operator in work.operators}
    assert own["aten::mm"] == pytest.approx((0.25, 1))
    assert own["aten::stack"] == pytest.approx((0.1, 1)) and own["aten::empty"] == pytest.approx((0.05, 1))
    assert sorted(thread.ms for thread in work.threads) == pytest.approx([0.04, 0.4])


RECORDED_CALL_MS = 0.0007  # what recording a call of Python takes


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


def python_loop() -> ChromeTrace:
    """Add steps of 1000 µs: 700 in features, 100 in the loop itself and 200 in mm.

    Of features' time, 200 are in a library that it calls and 100 in an operator there.
    """
    trace = ChromeTrace()
    for k in range(4):
        at = 1000 * k
        trace.step(k, at, at + 1000)
        calls = [
            ("train.py(20): main", 0, 1000, None),
            ("data.py(4): features", 0, 700, 0),
            ("numpy/core/fromnumeric.py(7): sum", 100, 300, 1),
        ]
        for number, (name, begin, end, parent) in enumerate(calls):
            above = {} if parent is None else {"Python parent id": 10 * k + parent}
            trace.host("python_function", name, at + begin, at + end, **{"Python id": 10 * k + number}, **above)
        trace.op("aten::sum", at + 150, at + 250)
        trace.op("aten::mm", at + 750, at + 950)
    return trace


def test_python_loop_names_the_function_if_calls_are_recorded(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), python_loop().write(tmp_path / "python.json"))
    work = result.host
    assert work is not None and work.rest_ms == pytest.approx(0.7)
    # Recording makes each call longer: features and the library's it makes, and main
    assert dict(work.functions) == pytest.approx(
        {"data.py(4): features": 0.6 - 2 * RECORDED_CALL_MS, "train.py(20): main": 0.1 - RECORDED_CALL_MS}
    )
    assert "most of it in features, data.py line 4" in first_line(result)
    assert "data.py(4): features" in text.text(result) and "data.py(4): features" in html.run_html(result)


def recorded_with_stacks() -> ChromeTrace:
    """Return four optimizer steps of 1000 µs: 600 in env_step, of which 400 in sin, and 100 in Adam.

    In the last step Sawtooth's hook ends the profile for 90 ms.
    """
    trace = ChromeTrace()
    for k in range(4):
        at, end = 1000 * k, 1000 * k + (91_000 if k == 3 else 1000)
        calls = [
            ("rl/loop.py(5): env_step", 0, 600),
            ("<built-in function sin>", 100, 500),
            ("rl/loop.py(18): learn", 700, end - at),
            ("torch/optim/adam.py(2): step", 800, end - at),
            ("ingest/capture/command/hook.py(117): _advance", 960, end - at),
        ]
        for number, (name, first, last) in enumerate(calls):
            above = {"Python parent id": 10 * k + {1: 0, 3: 2, 4: 3}[number]} if number in (1, 3, 4) else {}
            trace.host("python_function", name, at + first, at + last, **{"Python id": 10 * k + number}, **above)
        trace.host("user_annotation", "Optimizer.step#Adam.step", at + 800, end)
        trace.op("aten::mm", at + 850, at + 950)
    return trace


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


def test_much_longer_profiled_steps_are_reported_in_shares(tmp_path: Path) -> None:
    """Steps take 1 ms in the profile and 0.25 ms in the run.

    A function with 0.6 ms of a 0.25 ms step would be a contradiction.
    """
    result = analysed(
        DataFolder(tmp_path / "data").create(), recorded_with_stacks().write(tmp_path / "rl.json"), step_time_ms=0.25
    )
    content = text.text(result)
    assert content.count("profiled steps take 3.93 times as long as the run's, so these are shares") == 1
    tables = content[content.index("Where the host") : content.index("Numbers")]
    assert "Time" not in tables.replace("time", "") and " ms" not in tables and "µs" not in tables


def test_python_loop_gets_advice_to_record_calls(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for k in range(4):
        trace.step(k, 1000 * k, 1000 * k + 1000)
        trace.op("aten::mm", 1000 * k + 750, 1000 * k + 950)
    result = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "python.json"))
    assert "`sawtooth run --stacks` names the function" in first_line(result)


def test_one_sentence_covers_all_unknown_values(result: RunResult) -> None:
    reason = "No GPU work is recorded in this run"
    for form in (text.text, text.markdown, html.run_html):
        content = form(result)
        assert content.count(reason) == 1 and re.search(r"\d\d more\b", content)
        assert "Waiting for batches" in content and "aten" in content
    assert first_line(result).startswith("The host waits for batches 60\xa0% of each ≈\u00a01.00\xa0ms step")
    assert "Load batches" in lines(result)[0]


def test_the_terminal_says_which_steps_were_left_out(result: RunResult) -> None:
    step = replace(
        result.metrics["best_step_time_ms"],
        notes=("Mean of 115 steps.", "Of the second loop.", "Those 177 are left out.", "More."),
    )
    (line,) = (
        line for line in lines(replace(result, metrics={**result.metrics, "best_step_time_ms": step})) if "Mean of" in line
    )
    assert line.endswith("Mean of 115 steps. Of the second loop. Those 177 are left out.")


def test_stopwatch_and_marks_come_before_the_profiled_steps(tmp_path: Path) -> None:
    trace = loop().write(tmp_path / "host.json")
    data = DataFolder(tmp_path / "data").create()
    assert analysed(data, trace, step_time_ms=0.7).metrics["best_step_time_ms"].value == 0.7
    clock = iter(range(0, 10**12, 800_000))  # each mark 0.8 ms after the one before
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(100):
        writer.mark(step)
    writer.close()
    found = CliRunner().invoke(
        cli, ["report", str(trace), str(tmp_path / "marks.jsonl"), "--format", "json", "--data", str(tmp_path / "other")]
    )
    report = json.loads(found.stdout)
    assert report["metrics"]["best_step_time_ms"]["value"] == pytest.approx(0.8)
    assert report["host"]["loading_ms"] == pytest.approx(0.6)


def test_marks_without_a_trace_give_the_step_time(tmp_path: Path) -> None:
    clock = iter(range(0, 10**12, 800_000))
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(100):
        writer.mark(step)
    writer.close()
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl")
    assert result.metrics["best_step_time_ms"].value == pytest.approx(0.8)
    assert headline(result).startswith("A step takes 800\xa0µs. Neither a profile nor telemetry was recorded")


def test_evaluation_is_separated_without_a_trace(tmp_path: Path) -> None:
    """Evaluation is separated without a trace.

    It takes 20 ms after every 20th step of 0.8 ms. No GPU is named beside the marks, and none was sampled.
    """
    ends = iter([0, *np.cumsum([800_000 + 20_000_000 * (step % 20 == 0) for step in range(400)]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(400):
        writer.mark(step, phase="train" if step % 20 else "eval")
    writer.close()
    step = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl").metrics["best_step_time_ms"]
    assert step.value == pytest.approx(0.8)
    assert "evaluated 19 times (20 ms each)" in step.notes[0].replace("\xa0", " ")


def test_a_busy_host_after_the_profile_is_part_of_the_run(tmp_path: Path) -> None:
    """39 steps take 0.8 ms, six are profiled, and 197 take 1.2 ms while others use the host.

    No GPU profiler stays attached, so both parts count.
    """
    ends = iter([0, *np.cumsum([*[800_000] * 40, *[5_000_000] * 6, *[1_200_000] * 200]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(246):
        writer.mark(step, phase="profile" if 40 <= step < 46 else "train")
    writer.close()
    data = DataFolder(tmp_path / "data").create()
    recordings = [
        prepared(data, path, name="x").recordings[0]
        for path in (loop().write(tmp_path / "host.json"), tmp_path / "marks.jsonl")
    ]
    manifest = register_run(data, recordings, "on the host", {})
    with Library(data) as library:
        step = result_of(manifest, library).metrics["best_step_time_ms"]
    assert step.value == pytest.approx(1.134, rel=0.001) and not any("left out" in note for note in step.notes)


def test_runs_without_gpu_work_are_compared_by_their_marks(tmp_path: Path) -> None:
    files = []
    for name, step_ns in (("slow", 800_000), ("quick", 400_000)):
        (tmp_path / name).mkdir()
        clock = iter(range(0, 10**12, step_ns))
        writer = MarkWriter(
            tmp_path / name / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda clock=clock: next(clock)
        )
        for step in range(100):
            writer.mark(step)
        writer.close()
        files.append(str(tmp_path / name / "marks.jsonl"))
    asked = ["compare", *files, "--format", "json", "--data", str(tmp_path / "data")]
    said = json.loads(CliRunner().invoke(cli, asked).stdout)
    best = said["best_step_time_ms"]
    assert (best["verdict"], best["confidence"], best["source"]) == ("faster", "medium", {"a": "marks", "b": "marks"})
    assert best["change_ms"] == pytest.approx(
        -0.4
    )  # half the step: a host's own drift makes no such difference, another load may


TIMED = {"loader_cores": 4, "loader_batch": 16, "loader_sample_error_ms": 0.0}
WAITS = {**TIMED, "loader_sample_ms": 1.0, "loader_sample_cpu_ms": 0.1, "loader_collate_ms": 0.0}


def marked(path: Path, step_ms: float, steps: int = 100) -> Path:
    """Write marks of steps of ``step_ms`` each."""
    path.parent.mkdir(exist_ok=True)
    clock = iter(range(0, 10**12, int(step_ms * 1e6)))
    writer = MarkWriter(path, wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(steps):
        writer.mark(step)
    writer.close()
    return path


def test_waits_outside_the_profiled_steps_come_from_the_marks(tmp_path: Path) -> None:
    """Waits for epochs' first batches, which no profiled step shows, are no part of the profiled causes.

    A profiled step waits 0.6 ms, computes 0.3 and does 0.1 of other work. In the run, 40 epochs of ten steps wait 2 ms in nine
    and 22 ms in the first, of which 20 are for the start: 4 ms of the mean step of 12, and 8 ms of work: 6 and 2.
    """
    marks, end_ns = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: 0), 0
    for step in range(400):
        first = step % 10 == 0
        end_ns += (30 if first else 10) * 1_000_000
        waited = (22_000_000, 20_000_000, 15_000_000) if first else (2_000_000, 0, 0)
        marks.mark(step, now_ns=end_ns, waited=waited)
    marks.close()
    data = DataFolder(tmp_path / "data").create()
    traced = prepared(data, loop().write(tmp_path / "host.json")).recordings
    recordings = (*traced, *prepared(data, tmp_path / "marks.jsonl").recordings)
    facts = UserFacts(**{**TIMED, "loader_sample_ms": 0.02, "loader_workers": 2, "loader_dataset_samples": 100})
    library = Library(data)
    result = result_of(register_run(data, recordings, "epochs", {}, facts=facts), library)
    library.close()
    parts, (finding,) = host_parts(result), [each for each in result.findings if each.rule == "workers-start-again"]
    assert parts == pytest.approx({"host_loading": 4.0, "host_operators": 6.0, "host_rest": 2.0}, rel=0.03)
    assert finding.ceiling_ms_per_step == pytest.approx(1.8, rel=0.03)
    assert "every 10 steps: its 2 workers start again" in finding.title
    assert finding.predicted_low_ms is not None and finding.predicted_high_ms is not None
    assert finding.predicted_low_ms < 12.0 - 1.8 < finding.predicted_high_ms < 12.0
    assert "Waiting for an epoch's first batch" in text.text(result)


def test_checkpoints_between_the_steps_are_named(tmp_path: Path) -> None:
    """Checkpoints between the steps of a run without GPU work are named, with their time per step.

    Every tenth of the 400 steps saves for 20 ms more than the other steps, which take 10 ms.
    """
    marks, end_ns = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: 0), 0
    for step in range(400):
        saves = step % 10 == 5
        end_ns += (30 if saves else 10) * 1_000_000
        marks.mark(step, now_ns=end_ns, phase="checkpoint" if saves else "train", waited=(1_000_000, 0, 0))
    marks.close()
    data = DataFolder(tmp_path / "data").create()
    traced = prepared(data, loop().write(tmp_path / "host.json")).recordings
    recordings = (*traced, *prepared(data, tmp_path / "marks.jsonl").recordings)
    library = Library(data)
    result = result_of(register_run(data, recordings, "saves", {}, facts=UserFacts(**TIMED)), library)
    library.close()
    (finding,) = [each for each in result.findings if each.rule == "checkpoint-in-the-loop"]
    assert finding.ceiling_ms_per_step == pytest.approx(2.0, rel=0.05) and finding.predicted_step_ms is None
    assert finding.action is not None and finding.action.short == "Save checkpoints less often"


def test_inline_loading_gets_a_number_of_workers(tmp_path: Path) -> None:
    """Advice against loading in the training process includes a number of workers.

    A batch takes 16 × 1 ms of each 20 ms. Workers leave 4 ms, and 16 × 0.1 ms of computing on 4 cores: 4.4 ms. That
    needs 3,636 samples/s, and 4 workers deliver 4,000.
    """
    data = DataFolder(tmp_path / "data").create()
    result = analysed(data, marked(tmp_path / "marks.jsonl", 20.0), **WAITS, loader_workers=0)
    assert host_parts(result) == pytest.approx({"host_loading": 16.0, "host_rest": 4.0})
    finding = result.findings[0]
    assert finding.predicted_step_ms == pytest.approx(4.4)
    # Where the training computes on the cores that workers take, its step was 1.9 times as long as said.
    assert (finding.predicted_low_ms, finding.predicted_high_ms) == pytest.approx((4.4, 8.8))
    assert "(4.40 to 8.80\xa0ms), " in text.text(result)
    assert finding.fix.startswith("Load batches in 4 worker processes. A sample takes 1 ms, 100 µs of it on a core.")
    assert finding.changes[0].after == "loader = DataLoader(dataset, …, num_workers=4, persistent_workers=True)"
    assert headline(result) == "Load batches in 4 worker processes: 20.0 → ≈\u00a04.40\u00a0ms"
    assert "The loop waits 16 ms of each 20 ms step for batches" in text.text(result) + html.run_html(result)
    assert "800\u00a0samples/s → ≈\u00a03,640\u00a0samples/s" in html.run_html(result)


def test_workers_that_may_cost_the_gain_are_advised_without_a_prediction(tmp_path: Path) -> None:
    """Workers whose cores may take away the gain are advised without a prediction.

    A step of 34 ms takes 18 without loading, and 18.4 with the worker's computing. It takes up to twice that, 36.8, if
    the worker uses a core of the training.
    """
    data = DataFolder(tmp_path / "data").create()
    finding = analysed(data, marked(tmp_path / "marks.jsonl", 34.0), **WAITS, loader_workers=0).findings[0]
    assert finding.predicted_step_ms is None and "take cores from the training" in finding.prediction_note
    assert finding.fix.startswith("Load batches in a worker process")


def test_limiting_workers_and_sufficient_ones_are_named(tmp_path: Path) -> None:
    """Workers that limit the step are named, and so are those that are fast enough.

    Two workers give 2,000 samples/s. A step of 8 ms needs just these, one of 20 ms needs 800.
    """
    data = DataFolder(tmp_path / "data").create()
    paced = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 8.0), **WAITS, loader_workers=2)
    assert headline(paced) == "Use 4 loader workers instead of 2: up to 4.00\u00a0ms of each 8.00\u00a0ms step (low confidence)"
    assert first_line(paced).startswith("The loop uses 2,000 samples/s, all that its 2 loader workers can load")
    kept_up = analysed(data, marked(tmp_path / "b" / "marks.jsonl", 20.0), **WAITS, loader_workers=2)
    assert not kept_up.findings
    assert headline(kept_up) == (
        "A step takes 20.0\u00a0ms, and the loader keeps up: it can load 2,000\u00a0samples/s, and the loop uses 800\u00a0samples/s."
    )


def test_more_workers_than_cores_are_reported_if_samples_compute(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    computing = {**WAITS, "loader_sample_cpu_ms": 1.0}
    found = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 20.0), **computing, loader_workers=8).findings
    assert [finding.title for finding in found] == [
        "8 loader workers share 4 cores, and the work on a sample is 100 % computation"
    ]
    assert found[0].fix.startswith("Use at most 3 workers")
    for name, facts in (("b", {**computing, "loader_workers": 4}), ("c", {**WAITS, "loader_workers": 8})):
        assert not analysed(data, marked(tmp_path / name / "marks.jsonl", 20.0), **facts).findings


def test_batch_waits_of_a_cpu_profile_give_advice(result: RunResult) -> None:
    finding = result.findings[0]
    assert finding.ceiling_ms_per_step == pytest.approx(0.6) and finding.predicted_step_ms is None  # no sample was timed
    assert headline(result) == "Load batches in a worker process: up to 600\u00a0µs of each 1.00\u00a0ms step"
    assert "The host waits for batches 60" in text.text(result)


def test_no_advice_for_more_workers_than_cores(tmp_path: Path) -> None:
    """Sixteen workers compute on four cores, and the loop waits for them.

    Further workers would wait for a core too.
    """
    trace = ChromeTrace()
    for k in range(6):
        at = 20_000 * k
        trace.step(k, at, at + 20_000)
        trace.host("user_annotation", LOADER.replace("_SingleProcess", "_MultiProcessing"), at, at + 12_000)
        trace.op("aten::mm", at + 12_100, at + 19_900)
    computing = {**WAITS, "loader_sample_cpu_ms": 1.0}
    data = DataFolder(tmp_path / "data").create()
    found = analysed(data, trace.write(tmp_path / "crowded.json"), **computing, loader_workers=16).findings
    starves = next(f for f in found if f.rule == "data-loader-starves-gpu")
    assert starves.fix.startswith("Make a sample cheaper: ") and "more workers" not in starves.fix
    assert (starves.changes, starves.action.amount, starves.predicted_step_ms) == ((), None, None)
    assert "workers-beyond-cores" in {f.rule for f in found}
    few = analysed(data, trace.write(tmp_path / "few.json"), **WAITS, loader_workers=1).findings[0]
    assert few.fix.startswith("Use 2 loader workers instead of 1.") and "num_workers=2" in few.changes[0].after


def compared(data: DataFolder, a: RunResult, b: RunResult) -> Comparison:
    library = Library(data)
    try:
        return compare(side_of([a], library), side_of([b], library))
    finally:
        library.close()


def test_comparison_without_gpu_work_compares_the_host(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    a = analysed(data, loop(6).write(tmp_path / "a.json"))
    b = analysed(data, loop(9).write(tmp_path / "b.json"), step_time_ms=0.5)
    pair = compared(data, a, b)
    rows = {row.owner: (float(row.ms_a), float(row.ms_b)) for row in pair.waterfall_run}
    assert rows == {
        "host_loading": pytest.approx((0.6, 0.3)),
        "host_operators": pytest.approx((0.3, 0.15)),
        "host_rest": pytest.approx((0.1, 0.05)),
    }
    for form in (compare_text.text, compare_text.markdown, html.comparison_html):
        content = form(pair)
        assert "waiting for batches" in content
        for untrue in ("The GPU waits", "the GPU works", "makes of its GPU", "time outside the profiled steps"):
            assert untrue not in content
    assert step_parts.idle_title(step_parts.bars(pair, "run"), "run").startswith(
        "The host waits for batches 60\u00a0% of A's step"
    )


def test_operators_unknown_on_one_side_are_other_work_on_both(tmp_path: Path) -> None:
    """The trace's step has 0.6 ms of waiting, 0.4 of operators and the rest.

    By its loader's times, the other run waits 16 of its 20 ms.
    """
    data = DataFolder(tmp_path / "data").create()
    timed = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 20.0), **WAITS, loader_workers=0)
    pair = compared(data, timed, analysed(data, loop(6).write(tmp_path / "b.json")))
    rows = {row.owner: (float(row.ms_a), float(row.ms_b)) for row in pair.waterfall_run}
    assert rows == {"host_loading": pytest.approx((16.0, 0.6)), "host_rest": pytest.approx((4.0, 0.4))}


def test_five_profiled_host_steps_per_side_give_a_verdict(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    slow = ChromeTrace()
    for k in range(6):
        slow.step(k, 2000 * k, 2000 * k + 2000)
        slow.op("aten::mm", 2000 * k + 10, 2000 * k + 1990)
    pair = compared(data, analysed(data, slow.write(tmp_path / "a.json")), analysed(data, loop(6).write(tmp_path / "b.json")))
    # Twice as long, as the profiler alone can make a step, and one program on such a host from run to run.
    assert (pair.verdict.word, pair.verdict.confidence) == ("faster", "low")
    assert "≈\u00a02.00\u00a0ms → ≈\u00a01.00\u00a0ms" in words.headline(pair)


def test_batches_in_bursts_are_not_warm_up() -> None:
    # Three batches come at once: 70 rounds of 28, 1 and 2 ms, then 30 of 20, 1 and 1.5 ms, whose middle one is the
    # later half's median: (70 × 31 + 30 × 22.5) ÷ 300 = 9.48 ms a step, and not the 7.5 ms of the last 30 rounds.
    ends = np.cumsum([28.0, 1.0, 2.0] * 70 + [20.0, 1.0, 1.5] * 30) * 1e6
    seen = by_marks([Mark(i, int(end), "train") for i, end in enumerate(ends)])
    assert seen is not None and seen.ms == pytest.approx(9.48, rel=0.02)


def test_without_steps_times_refer_to_the_complete_recording(tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.op("aten::mm", 0, 300)
    trace.op("aten::mm", 500, 1000)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "t.json")).host
    assert work is not None and work.steps == 0 and work.step.value is None
    assert (work.operators_ms, work.rest_ms) == pytest.approx((0.8, 0.2))


def test_a_truncated_trace_of_the_host_says_so_in_its_headline(tmp_path: Path) -> None:
    whole = loop(40).json()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) * 3 // 4])
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "cut.json")
    assert headline(result).endswith("The trace file is cut off.")


def test_a_truncated_trace_says_nothing_about_the_gpu(tmp_path: Path) -> None:
    """The headline of a truncated trace is its missing part, not the GPU.

    No change is known for the remaining part. The host's share stands below the headline.
    """
    trace = ChromeTrace()
    for k in range(40):
        trace.step(k, 1000 * k, 1000 * k + 950)
        trace.op("aten::mm", 1000 * k + 10, 1000 * k + 900)
    whole = trace.json()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) * 3 // 4])
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "cut.json")
    assert headline(result).startswith("The trace file is cut off and contains no GPU work. Copy it again")
    assert "of each ≈" in (below(result) or "")


def test_a_second_loop_of_another_optimizer_is_reported(tmp_path: Path) -> None:
    """100 steps of 10 ms by one optimizer contain the profile; 300 steps of 45 ms by another follow.

    All numbers are of the first loop.
    """
    ends = iter([0, *np.cumsum([*[10_000_000] * 100, *[45_000_000] * 300]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(400):
        writer.mark(
            step if step < 100 else step - 100, phase="profile" if 50 <= step < 56 else "train", optimizer=step // 100 and 1
        )
    writer.close()
    step = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl").metrics["best_step_time_ms"]
    assert step.value == pytest.approx(10.0)
    assert step.notes[1].startswith("Another loop made 300 steps of 45 ms after these")


def test_run_without_a_profile_reports_unknown_instead_of_none(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    a = analysed(data, loop(20).write(tmp_path / "a.json"), loader_workers=0)
    b = analysed(data, marked(tmp_path / "marks.jsonl", 0.4), **WAITS | {"loader_workers": 4})
    library = Library(data)
    said = " ".join(setup_changes.sentences(compare(side_of([a], library), side_of([b], library))))
    library.close()
    assert "Waiting for batches 600" in said.replace("waiting", "Waiting") and "→ not recorded" in said
    assert "→ none" not in said and "% of the gain" not in said


def test_a_cpu_training_gets_no_advice_to_record_gpu_activity(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    files = [loop().write(tmp_path / "host.json"), marked(tmp_path / "marks.jsonl", 20.0)]
    refs = [ref for file in files for ref in prepared(data, file, name=file.stem).recordings]
    library = Library(data)
    said = text.text(result_of(register_run(data, refs, "both", {}), library))
    library.close()
    assert "more numbers: No GPU work is recorded in this run, and the recorder saw no GPU." in said


def test_no_advice_for_more_workers_on_a_full_cpu(tmp_path: Path) -> None:
    """300 of 1000 µs wait for 5 workers, and 600 are operators, on 2 cores."""
    trace = ChromeTrace()
    for k in range(5):
        at = 1000 * k
        trace.step(k, at, at + 1000)
        trace.host("user_annotation", LOADER.replace("Single", "Multi").replace("Process", "Processing", 1), at, at + 300)
        trace.op("aten::mm", at + 350, at + 950)
    facts = WAITS | {"loader_workers": 5, "loader_cores": 2}
    finding = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "cpu.json"), **facts).findings[0]
    assert "the CPU is the limit" in finding.fix and finding.action.amount is None and finding.predicted_step_ms is None
    assert not any("num_workers" in change.after for change in finding.changes)


def test_a_host_without_a_free_core_is_named(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "trace.json"))
    assert "workers-beyond-cores" not in {finding.rule for finding in result.findings}
    busy = HostLoad({"cpu_pct": 99.0, "cores": 2.0, "run_queue": 5.1}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=busy)))
    (finding,) = [finding for finding in crowded if finding.rule == "workers-beyond-cores"]
    assert finding.title == "This host has no free core: 2 cores are busy 99 % of the time, and 5.1 tasks want one"
    assert finding.action is not None and finding.action.short == "Ask for more cores"


def test_waits_for_a_core_are_not_reported_as_disk_waits(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "trace.json"), **WAITS)
    assert "for a disk, a network, a lock" in result.findings[0].title
    busy = HostLoad({"cpu_pct": 99.0, "cores": 2.0, "run_queue": 5.1}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=busy)))
    finding = next(finding for finding in crowded if finding.rule == "data-loader-starves-gpu")
    assert finding.title.endswith(": this host has no free core: 2 cores are busy 99 % of the time, and 5.1 tasks want one")
    assert "workers-beyond-cores" not in {finding.rule for finding in crowded}, "one finding says so"
    assert finding.action is not None and finding.action.short == "Ask for more cores"
    assert finding.action.sentence.endswith("Then load in worker processes.") and finding.predicted_step_ms is None
    has_core = HostLoad({**busy.means, "main_waits_pct": 4.0}, {}, 9)
    crowded, _ = check_host(replace(result, telemetry=RunTelemetry((), host=has_core)))
    finding = next(finding for finding in crowded if finding.rule == "data-loader-starves-gpu")
    assert "for a disk, a network, a lock" in finding.title, "the thread that loads the samples hardly waits for a core"


def test_cost_of_padding_is_its_share_of_the_operators(tmp_path: Path) -> None:
    """Operators take 300 of each 1000 µs outside the loader, and half of their work is padding."""
    trace = loop().write(tmp_path / "trace.json")
    result = analysed(DataFolder(tmp_path / "data").create(), trace, loader_padding=0.5)
    (finding,) = [finding for finding in result.findings if finding.rule == "shapes-vary"]
    assert finding.ceiling_ms_per_step == pytest.approx(0.15)
    assert finding.title == "50 % of each batch is padding, and the operators compute on all of it"
    little = analysed(DataFolder(tmp_path / "other").create(), trace, loader_padding=0.19)
    assert "shapes-vary" not in {finding.rule for finding in little.findings}
