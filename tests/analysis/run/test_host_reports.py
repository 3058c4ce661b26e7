"""Tests of the reports of runs without GPU work.

One sentence states everything that cannot be known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.reports import html, text
from sawtooth.app.reports.brief import lines
from sawtooth.app.words.headline import below, headline
from sawtooth.app.words.run import first_line
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.host_loops import analysed, loop, marked, recorded_with_stacks
from tests.support.prepared import prepared


@pytest.mark.parametrize(
    ("run_ms", "said"),
    [
        (0.25, "profiled steps take 3.93 times as long as the run's, so these are shares"),
        (4.0, "the run's steps take 4.07 times as long, so these are shares of a profiled step"),
    ],
)
def test_much_longer_or_shorter_profiled_steps_are_reported_in_shares(tmp_path: Path, run_ms: float, said: str) -> None:
    """Steps take 0.983 ms in the profile, and a quarter or four times of that in the run.

    A function with 0.6 ms of a 0.25 ms step would be a contradiction, and so would operators with 60 % of a 4 ms step.
    """
    result = analysed(
        DataFolder(tmp_path / "data").create(), recorded_with_stacks().write(tmp_path / "rl.json"), step_time_ms=run_ms
    )
    content = text.text(result)
    assert content.count(said) == 1
    assert "of a profiled step" in first_line(result)
    tables = content[content.index("Where the host") : content.index("Numbers")]
    assert "Time" not in tables.replace("time", "") and " ms" not in tables and "µs" not in tables


def test_one_sentence_covers_all_unknown_values(result: RunResult) -> None:
    reason = "No GPU work is recorded in this run"
    for form in (text.text, text.markdown, html.run_html):
        content = form(result)
        assert content.count(reason) == 1 and re.search(r"\d\d other\b", content)
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


def test_a_truncated_trace_of_the_host_says_so_in_its_headline(tmp_path: Path) -> None:
    complete = loop(40).json()
    (tmp_path / "cut.json").write_bytes(complete[: len(complete) * 3 // 4])
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
    complete = trace.json()
    (tmp_path / "cut.json").write_bytes(complete[: len(complete) * 3 // 4])
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "cut.json")
    assert headline(result).startswith("The trace file is cut off and contains no GPU work. Copy it again")
    assert "of each ≈" in (below(result) or "")


def test_a_cpu_training_gets_no_advice_to_record_gpu_activity(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    files = [loop().write(tmp_path / "host.json"), marked(tmp_path / "marks.jsonl", 20.0)]
    refs = [ref for file in files for ref in prepared(data, file, name=file.stem).recordings]
    library = Library(data)
    reported = text.text(result_of(register_run(data, refs, "both", {}), library))
    library.close()
    assert "other numbers: No GPU work is recorded in this run, and the recorder saw no GPU." in reported
