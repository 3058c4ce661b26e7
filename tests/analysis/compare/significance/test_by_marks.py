"""Tests of comparing runs by all of their step marks instead of the few profiled steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.significance.change_interval import ratio_interval
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.app.cli import cli
from sawtooth.ingest.capture.marks import MarkWriter
from tests.support.chrome_trace import BASE_NS, matmul_loop


def marked(best_ms: float, half_share: float = 0.01, name: str = "x") -> MeasuredSteps:
    return MeasuredSteps(
        steps_ms=(best_ms, best_ms * 1.02, best_ms * 0.98, best_ms),
        best_ms=best_ms,
        source="marks",
        recordings=(name,),
        low_ms=best_ms * (1 - half_share),
        high_ms=best_ms * (1 + half_share),
    )


def test_interval_includes_errors_of_both_step_times_and_of_runs() -> None:
    word = verdict([marked(1.0, name="a")], [marked(0.7, name="b")])
    # 90 to 95 %: 1.96 ÷ 1.645 = 1.1915; √(0.01² + 0.007²) · 1.1915 = 0.01454; 2 % · √(1² + 0.7²) = 0.02441; together 0.02842
    assert word.ci95_ms == pytest.approx((-0.3284, -0.2716), abs=1e-4)
    assert (word.word, word.confidence) == ("faster", "high")
    back = verdict([marked(0.7, name="b")], [marked(1.0, name="a")])
    assert (back.word, back.ci95_ms) == ("slower", pytest.approx((0.2716, 0.3284), abs=1e-4))


def test_steps_before_the_profile_are_compared_if_both_sides_have_them() -> None:
    """Two real loops of 14.2 and 11.9 ms took 16.7 and 16.1 ms after their profiles.

    By the stopwatch the second is 1.19 times as fast.
    """
    slowed = {
        name: replace(marked(best_ms, 0.02, name), high_ms=after_ms, before_high_ms=best_ms * 1.02)
        for name, best_ms, after_ms in (("a", 14.2, 16.7), ("b", 11.9, 16.1))
    }
    found = verdict([slowed["a"]], [slowed["b"]])
    assert found.answer == "faster" and found.ratio == pytest.approx((1.14, 1.25), abs=0.01)
    assert verdict([slowed["b"]], [slowed["a"]]).answer == "slower"
    only_after = replace(slowed["a"], before_high_ms=None)  # Steps before its profile are too few, so all steps are compared.
    assert verdict([only_after], [slowed["b"]]).answer == "cannot_tell"


def drifting(best_ms: float, name: str) -> MeasuredSteps:
    """Return marks of a host-bound step: ±2 % by themselves, ±15 % with the host's drift."""
    own = best_ms * 0.98, best_ms * 1.02
    run = marked(best_ms, name=name)
    return replace(run, low_ms=best_ms / 1.15, high_ms=best_ms * 1.15, marked_ms=own, before_high_ms=own[1], host_bound=True)


def test_marked_steps_within_host_drift_give_only_a_direction() -> None:
    a, b = drifting(10.0, "a"), drifting(8.5, "b")
    found, back = verdict([a], [b]), verdict([b], [a])
    assert (found.answer, found.confidence) == ("faster_size_unknown", "low")
    assert (back.answer, back.confidence) == ("slower_size_unknown", "low")
    assert "its speed changes by as much within a run" in found.why
    low, high = found.ratio or (None, None)
    assert low is not None and high is not None and low < 1 < 10 / 8.5 < high


def test_equal_steps_of_a_drifting_host_do_not_prove_no_change() -> None:
    # The 90 % interval of each step time is ±15 %, so the 95 % interval is ±18 %. The ratio's is e^(√2 · ln 1.18), more than
    # 20 %.
    assert verdict([drifting(10.0, "a")], [drifting(10.0, "b")]).answer == "cannot_tell"
    assert verdict([marked(10.0, name="a")], [marked(10.0, name="b")]).answer == "no_change"


def test_a_change_larger_than_the_drift_of_the_hosts_has_a_size() -> None:
    found = verdict([drifting(10.0, "a")], [drifting(5.0, "b")])
    assert found.answer == "faster" and found.confidence != "low"
    low, high = found.ratio or (None, None)
    assert low is not None and high is not None and 1.5 < low < 2 < high < 2.7


def test_a_small_change_has_medium_confidence_and_a_smaller_one_is_not_shown() -> None:
    assert verdict([marked(1.0, name="a")], [marked(0.95, name="b")]).confidence == "medium"
    small = verdict([marked(1.0, name="a")], [marked(0.98, name="b")])
    assert small.word == "no_difference_shown" and "reliably show only changes of" in small.why


def test_interval_of_the_change_is_that_of_the_ratio() -> None:
    a, b = [marked(1.0, name="a")], [marked(0.7, name="b")]
    # of the change's 0.02842 (above) A owns 0.01 and B 0.007 parts of √(0.01² + 0.007²): 0.02328 and 0.01630;
    # upwards √(ln² 1.02328 + ln² (1 − 0.01630 ÷ 0.7)) = 0.0329, so 1.4286 · e^0.0329; downwards √(ln² (1 − 0.02328) + ln² 1.02329) = 0.0329
    assert ratio_interval(a, b, (-0.32842, -0.27158)) == pytest.approx((1.3823, 1.4764), abs=2e-4)
    assert ratio_interval(b, a, (0.27158, 0.32842)) == pytest.approx((1 / 1.4764, 1 / 1.3823), abs=2e-4)
    # It is not known which side has the error.
    assert ratio_interval(a, [MeasuredSteps((0.7,), 0.7, "profile", ("b",))], (-0.4, -0.2)) is None
    assert ratio_interval(a, b, (None, -0.2)) is None
    assert ratio_interval(a, b, (-2.0, 1.4)) is None  # B's step may be zero


def test_marks_on_one_side_do_not_change_the_verdict() -> None:
    profiled = MeasuredSteps((0.7, 0.71, 0.69, 0.7), 0.7, "profile", ("b",))
    assert verdict([marked(1.0, name="a")], [profiled]).confidence == "low"


def test_recipe_of_the_readme_gives_more_than_low_confidence(tmp_path: Path) -> None:
    sides = []
    for name, step_us in (("before", 1000), ("after", 500)):
        folder = tmp_path / name
        folder.mkdir()
        matmul_loop(steps=6, step_us=step_us, matmul_us=step_us * 0.6).write(folder / "trace.json")
        times = iter(range(0, 10**12, step_us * 1000))
        writer = MarkWriter(
            folder / "marks.jsonl", wall_ns=lambda: BASE_NS - 10**9, monotonic_ns=lambda times=times: next(times)
        )
        for step in range(200):
            writer.mark(step)
        writer.close()
        sides.append(str(folder))
    found = CliRunner().invoke(cli, ["compare", *sides, "--format", "json", "--data", str(tmp_path / "data")])
    step = json.loads(found.stdout)["best_step_time_ms"]
    assert step["source"] == {"a": "marks", "b": "marks"}
    assert (step["verdict"], step["confidence"]) == ("faster", "medium")
