"""Tests of the report as text and Markdown: it describes the run first.

The profile's values stand next to it, with a label.
"""

from __future__ import annotations

import dataclasses

import msgspec

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.app.reports.escaped import for_terminals
from sawtooth.app.reports.html import run_html
from sawtooth.app.reports.text import markdown, text
from sawtooth.ingest.capture.command.recorded_runs import LEFT_OUT
from sawtooth.ingest.capture.in_process import profile_cost
from sawtooth.ingest.loop.step_boundary import step_in_words
from tests.support.run_results import finding_of, run_of

LEDGER = [("other_compute", None, 9_000_000, 9.0), ("idle", "launch_bound", 11_000_000, 1.0)]


def test_numbers_of_the_run_come_before_those_of_the_profile() -> None:
    # Under the profiler a step takes 20 ms, 9 of them busy. The run's step takes 10 ms.
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate", metrics={"gpu_busy_share": 0.45})
    lines = text(run).splitlines()
    busy = [line.split() for line in lines if line.strip().startswith("GPU busy")]
    assert busy[0][:2] == ["GPU", "busy"] and "90" in busy[0][2]
    assert busy[1][2] == "profiled" or busy[1][1] == "busy,"
    table = _table(lines)
    assert table[0].split("  ")[-1].strip() == "profiled step" and "run's step" in table[0]
    idle = next(line for line in table if "idle" in line)
    assert idle.index("1.00") < idle.index("10") < idle.index("11.0")  # ms of the run, its share in percent, ms of the profile


def test_an_owner_is_named_with_a_cause_of_another_name() -> None:
    ledger = [("exposed_memcpy", "unattributed", 9_000_000, 9.0), ("exposed_memcpy", "blocking_copy", 1_000_000, 1.0)]
    names = [line.split("  ")[1] for line in _table(text(run_of(ledger=ledger, best_ms=10.0)).splitlines())[1:3]]
    assert names == ["copy not overlapped", "copy not overlapped: blocking copy"]


def _table(lines: list[str]) -> list[str]:
    return lines[next(i for i, line in enumerate(lines) if line.startswith("Parts of a step")) :]


def test_markdown_has_the_same_columns() -> None:
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate", metrics={"gpu_busy_share": 0.45})
    assert "| parts of a step | run's step | share | profiled step |" in markdown(run)
    assert "| GPU busy, profiled | 45" in markdown(run)
    plain = run_of(ledger=[(o, c, ns, None) for o, c, ns, _ in LEDGER])
    assert "| parts of a step | profiled step | share |" in markdown(plain)


def test_names_are_escaped_in_comments_and_terminals() -> None:
    hostile = "H200\x1b]0;title\x07 | ![x](http://evil.test/x) @everyone <img src=x>"
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate")
    answer = Diagnostic("gpu", "info", f"The GPU calls itself {hostile}.", 1)
    run = dataclasses.replace(run, diagnostics=[answer])
    shown = markdown(run)
    assert not any(part in shown for part in ("![x]", "<img", " | !", "http://evil", "@everyone")), shown[-400:]
    assert "\x1b" not in shown + text(run) and "\x07" not in text(run)
    assert for_terminals(["a\x1b[2Jb", "two\nlines"]) == "a [2Jb\ntwo\nlines\n"


def test_the_terminal_shows_changes_before_numbers_and_each_reason_once() -> None:
    doubt = Reading(0.1, trust="caution", notes=("The step time is inferred.",))
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate")
    run = dataclasses.replace(
        run, findings=[finding_of("launch-bound")], metrics={**run.metrics, "mfu": doubt, "achieved_tflops": doubt}
    )
    shown = text(run)
    places = [shown.index(title) for title in ("What to change", "Parts of a step", "Numbers")]
    assert places == sorted(places)
    assert shown.count("The step time is inferred.") == 1 and shown.count("(caution") >= 2


def test_the_terminal_leaves_out_numbers_that_repeat_others_or_say_nothing() -> None:
    readings = {"mfu": 0.4, "hfu": 0.4, "mfu_at_dtype": 0.5, "gpu_busy_share": 0.45, "gpu_idle_share": 0.55}
    readings |= {"exposed_comm_share": 0.0, "tensor_core_unknown_share": 0.1, "flop_coverage": 1.0}
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate", metrics=readings)
    numbers = text(run).partition("\nNumbers\n")[2]
    assert all(f"  {label} " in numbers for label in ("MFU", "MFU at dtype", "GPU busy, profiled", "Tensor-core use unknown"))
    assert not any(label in numbers for label in ("HFU", "GPU idle", "Exposed communication", "FLOP coverage"))
    assert numbers.count("  MFU  ") == 1, "the audit does not repeat it"
    assert all(f"| {label} |" in markdown(run) for label in ("HFU", "GPU idle, profiled", "FLOP coverage"))


def test_reasons_for_missing_readings_are_given_once_with_a_list() -> None:
    why = "No shapes of matrix products are recorded."
    doubt = Reading(0.1, trust="caution", notes=("The step time is inferred.",))
    run = run_of(ledger=LEDGER, best_ms=10.0, source="estimate")
    readings = {key: missing(why) for key in ("flops_per_step", "mfu", "hfu", "achieved_tflops")}
    clock = Reading(1.08, notes=("Above 100 % because the GPU is fast.",))
    run = dataclasses.replace(
        run, metrics={**run.metrics, **readings, "sm_efficiency": doubt, "achieved_occupancy": doubt, "mfu_factor_clock": clock}
    )
    for shown in (text(run), markdown(run), run_html(run)):
        assert shown.count(why) == 1 and "FLOPs per step, MFU, HFU, Achieved" in shown
        assert shown.count("The step time is inferred.") == 1 and "caution: see SM efficiency" in shown
        assert "Above 100 % because the GPU is fast." in shown.replace("\xa0", " ")


def test_every_report_says_once_what_a_step_is_if_no_optimizer_steps() -> None:
    run, step = (
        run_of(ledger=LEDGER, best_ms=10.0, source="marks"),
        "No optimizer stepped, so a step is one backward pass (main.py:200).",
    )
    assert "No optimizer" not in text(run) + markdown(run) + run_html(run)
    run.metrics["best_step_time_ms"] = dataclasses.replace(
        run.metrics["best_step_time_ms"], notes=("A mean.", step_in_words("backward", line="main.py:200"))
    )
    assert text(run).splitlines().index(step) < 4
    assert [shown.count(step) for shown in (text(run), markdown(run).replace("\\", ""), run_html(run))] == [1, 1, 1]


def test_every_report_repeats_what_the_recorder_says_about_the_numbers() -> None:
    answer = [
        LEFT_OUT.format(count=2, steps=50, all=80),
        f"{profile_cost.ENDED_EARLY.format(steps=2, wanted=5, why=profile_cost.LOOP_ENDED)}{profile_cost.PAUSE.format(seconds=7.4, what='its profile')}",
    ]
    run = run_of(ledger=LEDGER, best_ms=10.0, source="marks")
    notes = "\n".join(["Recorded by `sawtooth run train.py`.", answer[0], "No GPU telemetry: no driver.", answer[1]])
    noted = dataclasses.replace(run, manifest=msgspec.structs.replace(run.manifest, notes=notes))
    for shown in (text(noted), markdown(noted), run_html(noted)):
        assert all(sentence in shown.replace("\xa0", " ") for sentence in answer) and "telemetry: no driver" not in shown
    own = dataclasses.replace(run, manifest=msgspec.structs.replace(run.manifest, notes="\n".join(["My notes.", *answer])))
    assert text(own) == text(run)
