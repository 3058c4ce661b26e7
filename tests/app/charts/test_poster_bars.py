"""Tests of the poster's bars: every visible part has its name.

The step after a change does not use a cause's colour.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.verdict import RunJudgement, judge
from sawtooth.app import templates
from sawtooth.app.charts import step_bar
from sawtooth.app.charts.poster_bars import BarSegment, StepBar, both_steps, now_and_after, of_shares, unlabelled
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.reports import text
from sawtooth.app.theme import OWNERS
from sawtooth.app.words import lost_time
from sawtooth.app.words.savings import Amount
from tests.support.run_results import run_of

LEDGER = [
    ("other_compute", None, 400_000, 0.4),
    ("idle", "unattributed", 500_000, 0.5),
    ("idle", "host_sync", 95_000, 0.095),
    ("memset", None, 5_000, 0.005),
]


def judged() -> RunJudgement:
    lead = run_of(ledger=LEDGER, source="estimate").lead
    assert lead is not None
    verdict = judge(lead)
    assert verdict is not None
    return verdict


def test_narrow_parts_are_named_below_unless_they_are_tiny() -> None:
    bars = now_and_after(judged(), "1.00 ms", None)
    assert [piece.hint.split(":")[0] for piece in unlabelled(bars)] == ["host waits for a result (sync)"]
    assert [piece.label.split("\u00a0")[0] for piece in bars[0].parts if piece.label] == [
        "other compute 0.40",
        "cause not in the trace 0.50",
    ]


def test_the_step_after_a_change_has_the_predicted_length_and_no_owner() -> None:
    _, after = now_and_after(judged(), "1.00 ms", CombinedPrediction(before_ms=1.0, after_ms=0.6, mfu_before=None, gpus=1))
    assert after.width == "60.00%"  # 0.6 of 1 ms
    assert after.parts[0].colour not in {owner.light for owner in OWNERS.values()}


def test_time_outside_the_profiled_steps_is_labelled() -> None:
    # 1 ms by telemetry. The unprofiled estimate explains 0.5 ms, so half is outside the profiled steps.
    run = run_of(
        ledger=[("other_compute", None, 400_000, 0.4), ("idle", "unattributed", 100_000, 0.6)], best_ms=1.0, source="telemetry"
    )
    lead = run.lead
    assert lead is not None
    lead = replace(lead, best=replace(lead.best, estimate=Reading(0.5)))
    verdict = judge(lead)
    assert verdict is not None
    named = {part.hint.split(":")[0]: part.weight for part in now_and_after(verdict, "1.00 ms", None)[0].parts}
    assert named == {"other compute": 400.0, "cause not in the trace": 100.0, "outside the profiled steps": 500.0}
    rows = {row.name: row.ms for row in lost_time.rows(lead, "unprofiled")}
    # Idle uses the same words
    assert rows == pytest.approx({"outside the profiled steps": 0.5, "cause not in the trace": 0.1})
    assert "outside the profiled steps" in text.text(replace(run, lead=lead, ranks=[lead]))


def test_a_narrow_page_lists_named_parts_below_the_bar() -> None:
    wide, narrow = (
        BarSegment(f"{name}: 1 ms", f"{name} 1 ms", weight, "#000000", "")
        for name, weight in (("wide", 950.0), ("narrow", 50.0))
    )
    shown = str(
        templates.pieces("poster.html").step(
            Amount("1 ms", "a step", True), None, None, [StepBar("now", "1 ms", "100%", (wide, narrow))], [], "alt", []
        )
    )
    assert '<b class="st-if-wide">narrow 1 ms</b>' in shown and "<b>wide 1 ms</b>" in shown
    assert shown.count("st-if-narrow") == 1 and "narrow: 1 ms</span>" in shown


def test_a_phone_shows_shares_and_the_time_of_the_next_step() -> None:
    verdict = judged()
    bars = now_and_after(verdict, "1.00 ms", CombinedPrediction(1.0, 0.8, None, 1))
    shown = str(templates.pieces("poster.html").drawn(bars, unlabelled(bars)))
    part = next(part for part in bars[0].parts if part.label)
    assert f"{part.short}</span>" in shown and part.short.replace("\xa0", " ").endswith("%")
    assert bars[1].parts[0].label and f"{bars[1].parts[0].hint}</span>" not in shown


def test_a_name_too_long_for_its_part_is_listed_below() -> None:
    # 17.6 % of the bar: "Python on the host 26.0 ms" has 26 letters and takes 0.0078 * 26 = 20 % of it
    ledger = [("other_compute", None, 122_000_000, 122.0), ("idle", "python_host", 26_000_000, 26.0)]
    verdict = judge(run_of(ledger=ledger).lead)
    assert verdict is not None
    bars = now_and_after(verdict, "148 ms", None)
    assert [piece.label for piece in bars[0].parts if piece.label] == ["other compute 122\xa0ms"]
    assert [piece.hint.split(":")[0] for piece in unlabelled(bars)] == ["Python on the host"]


def test_parts_of_a_step_have_one_order_on_every_screen() -> None:
    verdict = judged()
    names = [piece.hint.partition(":")[0] for piece in now_and_after(verdict, "1.00 ms", None)[0].parts]
    assert names == ["other compute", "memset", "host waits for a result (sync)", "cause not in the trace"]
    parts = verdict.parts
    card = of_shares([(part.owner, part.cause, part.share) for part in parts], dark=False)
    compared = both_steps([WaterfallBar(part.owner, part.cause, part.ms, part.ms) for part in parts], dark=False)
    of_verdict = step_bar.chart({"recorded": parts}, "t", dark=False, per_step=True).figure.data
    for bar in (card, compared[0].parts, compared[1].parts):
        assert [piece.hint.partition(":")[0] for piece in bar] == names
    assert [trace.name for trace in of_verdict] == names


def test_a_time_alone_is_a_label_only_if_it_is_not_cut() -> None:
    """A number is not cut off.

    Seven letters and their margins need 0.0078 · 10 of the bar, more than a part of 41.8 of 752 ms has.
    """
    bars = [
        WaterfallBar("tensor_core_compute", None, 41.8, 42.0),
        WaterfallBar("other_compute", None, 110.0, 110.0),
        WaterfallBar("idle", "data_wait", 595.0, 0.0),
    ]
    step_a, _ = both_steps(bars, dark=False)
    assert [piece.label.replace("\u00a0", " ") for piece in step_a.parts] == ["", "110 ms", "data loader 595 ms"]
