"""Tests of the choice among the sources of the step time, and of the interval from the trace alone.

They also test how the other sources affect the chosen one.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sawtooth.analysis.metrics.device_facts import StepEstimate
from sawtooth.analysis.metrics.loader_rate import Feeding
from sawtooth.analysis.metrics.pauses import Pauses, Round
from sawtooth.analysis.metrics.step_time import BestStepTime, choose_step_time
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork, by_trace, with_host_drift

WORK = StepWork(kernel_ns=29.8e6, dispatched=1067)  # A ViT: 31.1 ms with its dispatch.


def steps(*durations_ms: float) -> pd.DataFrame:
    ends = pd.Series(durations_ms).cumsum() * 1e6
    return pd.DataFrame({"counted": True, "start_ns": ends - pd.Series(durations_ms) * 1e6, "end_ns": ends})


def chosen(
    profiled: tuple[float, ...],
    estimate_ms: float,
    *,
    work: StepWork = WORK,
    user_ms: float | None = None,
    fed: Feeding | None = None,
    **evidence: StepTimeEvidence,
) -> BestStepTime:
    return choose_step_time(steps(*profiled), StepEstimate(estimate_ms * 1e6), user_ms, work=work, fed=fed, **evidence)  # type: ignore[arg-type]


def telemetry(ms: float) -> StepTimeEvidence:
    return StepTimeEvidence("telemetry", ms, 0.92 * ms, 1.08 * ms, ("seen",))


MARKS = StepTimeEvidence("marks", 31.9, 31.6, 32.2)


@pytest.mark.parametrize(
    ("timed_s", "share"),
    # √(14 %² + (40 ÷ 39 − 1)²) = 14.233 % within a minute; over four minutes √(7 %² + 2.564 %²) = 7.455 %
    [(2.0, 0.14233), (60.0, 0.14233), (240.0, 0.07455)],
)
def test_marks_of_a_host_limited_step_include_host_drift(timed_s: float, share: float) -> None:
    marks = StepTimeEvidence("marks", 40.0, 39.0, 41.0, timed_s=timed_s)  # the GPU needs 31.1 ms, and 1.12 × 31.1 = 34.8
    best = chosen((42.0, 43.0), 39.0, marks=marks)
    assert best.source == "marks" and best.ms == 40.0
    assert best.reading.low == pytest.approx(40 / (1 + share), rel=1e-4)
    assert best.reading.high == pytest.approx(40 * (1 + share), rel=1e-4)
    (seen,) = (item for item in best.evidence if item.source == "marks")
    assert seen.marked_ms == (39.0, 41.0) and with_host_drift(seen) == seen, "a job of several GPUs includes it once"


def test_marks_of_a_gpu_limited_step_include_no_drift() -> None:
    best = chosen((32.0, 32.5), 31.5, marks=replace(MARKS, timed_s=2.0))
    assert (best.reading.low, best.reading.high) == (31.6, 32.2)
    copies = replace(WORK, copies_ns=6e6)  # 31.1 ms of kernels and 6 ms of copies: 1.12 × 37.1 = 41.6
    best = chosen((42.0, 43.0), 39.0, marks=StepTimeEvidence("marks", 40.0, 39.0, 41.0), work=copies)
    assert (best.reading.low, best.reading.high) == (39.0, 41.0)


def test_strongest_evidence_decides_without_averaging() -> None:
    everything = chosen((71, 71), 49.2, user_ms=31.87, telemetry=telemetry(31.3), marks=MARKS)
    assert (everything.source, everything.ms) == ("user", 31.87)
    assert [w.source for w in everything.evidence] == ["user", "marks", "telemetry", "estimate"]
    without_user = chosen((71, 71), 49.2, telemetry=telemetry(31.3), marks=MARKS)
    assert (without_user.source, without_user.ms, without_user.reading.trust) == ("marks", 31.9, "ok")
    assert (without_user.reading.low, without_user.reading.high) == (31.6, 32.2)
    by_law = chosen((71, 71), 49.2, telemetry=telemetry(31.3))
    assert (by_law.source, by_law.ms, by_law.reading.trust) == ("telemetry", 31.3, "caution")
    assert chosen((71, 71), 49.2).source == "estimate"


def test_a_gpu_bound_profile_that_telemetry_confirms_was_measured() -> None:
    best = chosen((32.0, 32.2), 31.9, telemetry=telemetry(31.3))
    assert (best.source, best.ms) == ("profile", pytest.approx(32.1))
    assert best.reading.low is not None and best.reading.high is not None
    assert best.reading.low <= 32.1 <= best.reading.high <= 31.3 * 1.08
    assert chosen((32.0, 32.2), 31.9, telemetry=telemetry(60.0)).source == "telemetry"


def test_marks_of_launches_only_are_not_a_step_time() -> None:
    # Twenty-five marks of a loop that reads its loss every tenth step contain two waits, which look like pauses.
    assert chosen((32.0, 32.2), 31.9, marks=StepTimeEvidence("marks", 2.1, 2.0, 2.2)).source != "marks"
    shorter = chosen((32.0, 32.2), 31.9, marks=StepTimeEvidence("marks", 24.0, 23.8, 24.2))
    assert shorter.source == "marks"  # The lengths differ from those of the profiled steps.


def test_disagreement_is_reported_and_lowers_trust() -> None:
    best = chosen((71, 71), 49.2, marks=StepTimeEvidence("marks", 50.0, 49.5, 50.5), telemetry=telemetry(31.3))
    assert (best.source, best.reading.trust) == ("marks", "caution")
    assert any("31.3 ms" in note and "50 ms" in note and "disagree" in note for note in best.reading.notes)
    agreed = chosen((71, 71), 49.2, marks=MARKS, telemetry=telemetry(31.3))
    assert agreed.reading.trust == "ok" and any("Telemetry agrees: 31.3 ms" in note for note in agreed.reading.notes)


def test_evidence_as_wide_as_the_trace_does_not_replace_it() -> None:
    best = chosen((71, 71), 49.2, telemetry=StepTimeEvidence("telemetry", 100.0, 50.0, 200.0))
    assert best.source == "estimate"


def test_lower_bound_in_the_interval_is_reported_with_advice() -> None:
    best = chosen((71, 72), 49.2)
    assert best.gpu_may_limit and best.floor_ms == pytest.approx(31.08, abs=0.01)
    assert any("sawtooth sample" in note for note in best.reading.notes)
    host_bound = chosen((71, 72), 60.0, work=StepWork(10e6, 500))
    assert not host_bound.gpu_may_limit


def test_only_a_much_longer_run_is_not_represented() -> None:
    assert chosen((21, 21), 20.8, work=StepWork(15.3e6, 930), telemetry=telemetry(130.0)).represented is False
    assert chosen((71, 71), 49.2, telemetry=telemetry(31.3)).represented


def test_a_run_within_its_profiled_step_is_represented_for_any_replay() -> None:
    small = StepWork(1.2e6, 390)
    assert chosen(
        (14.6, 14.6), 7.0, work=small, telemetry=telemetry(9.5)
    ).represented  # The step time is 1.36 times the replay, and less than the profiled step of 14.6 ms.
    assert chosen(
        (14.6, 14.6), 7.0, work=small, telemetry=telemetry(15.5)
    ).represented  # The step time is at least 14.3 ms, so the profiled step may contain all of it.
    assert not chosen((14.6, 14.6), 7.0, work=small, telemetry=telemetry(17.0)).represented


@pytest.mark.parametrize(
    ("ms", "typical_ms", "represented"),
    [
        (16.6, 16.2, True),  # Each takes equally long: these are the profiled steps on a host of another speed.
        (16.6, 3.4, False),  # A few long ones, which are not in the profile.
        (16.6, None, False),
        (20.0, 19.8, False),  # The speed of a host changes less.
    ],
)
def test_uniformly_longer_steps_are_the_profiled_ones_on_a_slower_host(
    ms: float, typical_ms: float | None, represented: bool
) -> None:
    marks = StepTimeEvidence("marks", ms, 0.95 * ms, 1.05 * ms, typical_ms=typical_ms)
    assert chosen((13.9, 13.9), 7.2, work=StepWork(2.1e6, 440), marks=marks).represented is represented


ROUND, SHORT = Round(8, step_ms=6.0, usual_ms=3.0), (3.2,) * 5
WHOLE = (3.2, 3.2, 28.0, *(3.2,) * 5)


@pytest.mark.parametrize(
    ("profiled", "work", "usual_ms"),
    [
        (SHORT, StepWork(0.5e6, 100), 3.0),  # The step time comes from the marks only.
        (WHOLE, StepWork(0.5e6, 100), 3.0),
        (WHOLE, StepWork(0.5e6, 100, waits_ns=1e6), 3.0),  # The loader is not the limit.
        (WHOLE, StepWork(0.5e6, 100, waits_ns=3e6), None),  # Eight workers, and each eighth batch is waited for.
        (SHORT, StepWork(0.5e6, 100, waits_ns=1e4), None),  # The rounds may be a loader's.
        (SHORT, StepWork(0.5e6, 100, hidden_loader=True), None),
        ((6.0,) * 8, StepWork(5.8e6, 100), None),  # The host reads the loss every eighth step, and waits there for the GPU.
        ((4.0, 4.0, 20.0, *(4.0,) * 5), StepWork(5.0e6, 100), 4.0),  # The step time also covers the GPU's work in a rollout.
    ],
)
def test_rounds_are_reported_unless_batches_or_the_gpu_cause_them(
    profiled: tuple[float, ...], work: StepWork, usual_ms: float | None
) -> None:
    marks = StepTimeEvidence("marks", 6.0, 5.9, 6.1, ("by marks",), typical_ms=3.0, round=ROUND)
    best = chosen(profiled, 5.8 if len(profiled) == 8 else 3.1, work=work, marks=marks)
    assert (best.round and best.round.usual_ms) == (usual_ms and pytest.approx(usual_ms))
    sentence = (
        "A round of 8 steps takes 48 ms: 24 ms in its steps and 24 ms before the first step (e.g. a rollout or an evaluation)."
    )
    assert (sentence in {note.replace("\xa0", " ") for note in best.reading.notes}) is (usual_ms == 3.0)
    if best.round is not None:
        assert best.round.profiled is (len(profiled) == 8)


@pytest.mark.parametrize(("profiled", "represented"), [(WHOLE, True), (SHORT, False)])
def test_complete_rounds_on_a_slower_host_represent_the_run(profiled: tuple[float, ...], represented: bool) -> None:
    marks = StepTimeEvidence("marks", 6.0, 5.9, 6.1, typical_ms=3.0, round=ROUND)
    assert chosen(profiled, 3.1, work=StepWork(0.5e6, 100), marks=marks).represented is represented


def test_evaluation_before_each_round_is_part_of_the_round() -> None:
    often = Pauses("evaluation", (8, 16, 24), (24.0,) * 3, 24, in_step=True)
    marks = StepTimeEvidence("marks", 6.0, 5.9, 6.1, pauses=(often,), round=replace(ROUND, evaluates=True))
    best = chosen(WHOLE, 5.8, work=StepWork(0.5e6, 100), marks=marks)
    assert best.pauses == () and best.round is not None and "a rollout or an evaluation" in best.round.sentence
    alone = chosen(WHOLE, 5.8, work=StepWork(0.5e6, 100), marks=replace(marks, round=None))
    assert alone.pauses == (often,)


def test_workers_own_the_time_that_a_full_queue_hid() -> None:
    # The run takes 24.2 ms a step, 29.6 as profiled and 16.5 without the profiler. Four workers need 24 ms for a batch,
    # and their queue was full.
    hidden, seen = (StepWork(3.4e6, 600, hidden_loader=hides) for hides in (True, False))
    fed, ahead = Feeding(24.0, 21.3, 27.6, 4), Feeding(18.0, 16.0, 20.0, 8)
    assert chosen((29.6, 29.6), 16.5, work=hidden, user_ms=24.2, fed=fed).represented is False
    assert chosen((29.6, 29.6), 16.5, work=hidden, user_ms=24.2).represented  # The workers were not timed.
    # The host limits the step, as in the profile.
    assert chosen((29.6, 29.6), 16.5, work=hidden, user_ms=24.2, fed=ahead).represented
    assert chosen((29.6, 29.6), 16.5, work=seen, user_ms=24.2, fed=fed).represented  # The profiled steps waited too.


def test_trace_only_interval_is_narrow_if_gpu_bound() -> None:
    bound = by_trace(WORK, [32.0, 32.4, 32.2], 32.1)
    assert bound is not None and bound.width is not None and bound.width < 1.2 and bound.contains(31.87)
    limited = by_trace(WORK, [71.0, 72.0], 49.2)
    assert (
        limited is not None
        and limited.contains(31.87)
        and limited.low_ms == pytest.approx(max(0.96 * 31.08, 49.2 / 1.6), abs=0.01)
    )
    assert limited.high_ms == pytest.approx(49.2 * 1.42)  # less than 72 × 1.05
    assert by_trace(WORK, [], None) is None


def test_loader_without_waits_in_the_profile_gives_no_upper_bound() -> None:
    best = chosen((21, 21), 20.8, work=StepWork(15.3e6, 930, hidden_loader=True))
    assert best.reading.high is None and best.reading.low is not None and best.reading.low > 15
    assert any("This trace gives no upper bound" in note for note in best.reading.notes)
    assert chosen(
        (21, 21), 20.8, work=StepWork(15.3e6, 930, hidden_loader=True), telemetry=telemetry(130.0)
    ).reading.high == pytest.approx(140.4)


def test_telemetry_cannot_be_faster_than_the_kernels() -> None:
    best = chosen((71, 71), 49.2, telemetry=telemetry(31.3))
    assert best.reading.low is not None and best.reading.low >= 0.95 * 31.08


def test_telemetry_step_includes_inline_loading() -> None:
    work = StepWork(kernel_ns=20e6, dispatched=1000, loading_ns=570e6, loading_least_ns=570e6)
    best = chosen((606, 608), 600.0, work=work, telemetry=telemetry(326.0))
    assert best.source == "profile" and best.ms == pytest.approx(607)
    assert "telemetry" not in {item.source for item in best.evidence}
    # the profiled loading takes longer, perhaps because its operators were recorded
    slowed = StepWork(kernel_ns=20e6, dispatched=1000, loading_ns=570e6, loading_least_ns=300e6)
    assert chosen((606, 608), 600.0, work=slowed, telemetry=telemetry(326.0)).source == "telemetry"
    alone = chosen((606, 608), 600.0, work=slowed).reading
    assert alone.low == pytest.approx(600 / 1.6 - 270), "the loader may have taken 270 ms less"
    by_workers = chosen((606, 608), 600.0, work=StepWork(20e6, 1000), telemetry=telemetry(326.0))
    assert by_workers.source == "telemetry", "worker processes may load ahead outside the profile"
