"""Tests of pauses between step marks: checkpoints, evaluations, rounds and worker starts."""

import pytest

from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.telemetry.step_marks import Mark, by_marks
from tests.support.step_marks import marks

MS = 1_000_000


def test_checkpoint_every_ten_steps_counts_and_single_pause_does_not() -> None:
    every_ten = by_marks(marks(*([26.0] * 9 + [1700.0]) * 8))
    assert every_ten is not None and every_ten.ms == pytest.approx((9 * 26 + 1700) / 10, rel=0.12)
    once = by_marks(marks(*[26.0] * 40, 30_000.0, *[26.0] * 40))
    assert once is not None and once.ms == pytest.approx(26.0)
    assert "paused once (30 s). The step time does not include" in once.notes[0].replace("\xa0", " ")


@pytest.mark.parametrize(("phase", "reason"), [("train", "unknown"), ("checkpoint", "checkpoint")])
def test_pauses_outside_the_step_time_are_reported(phase: str, reason: str) -> None:
    # As recorded on an H200: torch.save every 100 steps, which a stopwatch includes and the step time does not.
    before, after = [17.0] * 99 + [1317.0] + [17.0] * 14, [18.0] * 3 + [17.0] * 76 + [1517.0] + [17.0] * 99
    gaps = [*before, *[40.0] * 6, *after]
    saved = [
        mark._replace(phase=phase) if gap > 1000 else mark
        for mark, gap in zip(marks(*gaps, profiled=range(115, 121)), [0.0, *gaps], strict=True)
    ]
    evidence = by_marks(saved)
    assert evidence is not None and evidence.ms == pytest.approx(17.0)
    (pauses,) = evidence.pauses
    assert (pauses.reason, pauses.steps, pauses.in_step) == (reason, (100, 200), False)
    assert pauses.ms == pytest.approx((1300.0, 1500.0))
    assert "2 times (1.3 s to 1.5 s each). The step time does not include" in evidence.notes[0].replace("\xa0", " ")


@pytest.mark.parametrize("cpu_only", [False, True])
@pytest.mark.parametrize("phase", ["train", "checkpoint", "eval"])
def test_workers_that_start_in_each_epoch_are_part_of_the_step_time(phase: str, cpu_only: bool) -> None:
    """Lightning saves a checkpoint between two epochs, and then starts the workers again."""
    gaps = [*([4.0] * 429 + [360.0]) * 2, *[4.0] * 200]
    begun = [
        mark._replace(phase=phase, wait_ns=350 * MS, first_ns=350 * MS, start_ns=300 * MS) if gap > 300 else mark
        for mark, gap in zip(marks(*gaps), [0.0, *gaps], strict=True)
    ]
    evidence = by_marks(begun, cpu_only=cpu_only)
    assert evidence is not None and evidence.ms == pytest.approx(4.0 + 2 * 350 / len(gaps), rel=0.01)


@pytest.mark.parametrize("cpu_only", [False, True])
def test_first_wait_of_an_epoch_is_no_part_of_its_checkpoint(cpu_only: bool) -> None:
    # As in super_resolution: 50 steps, then a checkpoint of 20 ms and a wait of 549 ms for the next epoch's first batch.
    gaps = [*([9.0] * 49 + [578.0]) * 6, *[9.0] * 10]
    begun = [
        mark._replace(phase="checkpoint", wait_ns=549 * MS, first_ns=549 * MS, start_ns=500 * MS) if gap > 500 else mark
        for mark, gap in zip(marks(*gaps), [0.0, *gaps], strict=True)
    ]
    evidence = by_marks(begun, cpu_only=cpu_only)
    assert evidence is not None and evidence.parts is not None
    (checkpoints,) = evidence.pauses
    assert checkpoints.ms == pytest.approx((20.0,) * 6) and checkpoints.in_step is not cpu_only
    in_step_ms = checkpoints.ms_per_step if checkpoints.in_step else 0.0
    assert evidence.ms == pytest.approx(9.0 + in_step_ms + evidence.parts.first_ms, rel=0.05)


def test_frequent_checkpoints_are_part_of_the_step_time() -> None:
    often = [mark._replace(phase="checkpoint") if mark.step % 20 == 0 else mark for mark in marks(*([7.0] * 19 + [57.0]) * 50)]
    evidence = by_marks(often)
    assert evidence is not None and evidence.ms == pytest.approx(9.5, rel=0.01)
    (pauses,) = evidence.pauses
    assert (
        pauses.in_step
        and pauses.ms_per_step == pytest.approx(2.5, rel=0.01)
        and pauses.share(9.5) == pytest.approx(0.263, rel=0.01)
    )


def test_pauses_do_not_make_steps_after_the_profile_slower() -> None:
    """There is one pause in the 90 steps before the profile and four in the 200 steps after it."""
    gaps = [*[20.0] * 50, 1000.0, *[20.0] * 40, *[90.0] * 6, *([20.0] * 49 + [1000.0]) * 4, *[20.0] * 10]
    evidence = by_marks(marks(*gaps, profiled=range(92, 98)))
    assert evidence is not None and evidence.ms == pytest.approx(20 + 5 * 980 / 298, rel=0.1)
    assert not any("longer" in note for note in evidence.notes)


def test_pause_after_the_profile_is_reported_if_only_earlier_steps_count() -> None:
    gaps = [*[20.0] * 40, *[90.0] * 6, *[25.0] * 40, 2000.0, *[25.0] * 40]
    evidence = by_marks(marks(*gaps, profiled=range(41, 47)))
    assert (
        evidence is not None and evidence.ms == pytest.approx(20.0) and [pauses.steps for pauses in evidence.pauses] == [(87,)]
    )


@pytest.mark.parametrize(
    ("steps", "period"),
    [((100, 200), 100), ((101, 201), 100), ((99, 199), 100), ((50, 150), None), ((70, 170, 271), 100.5), ((70, 170, 290), None), ((100,), None), ((100, 100), None)],
)  # fmt: skip
def test_pauses_have_a_period_if_they_are_equally_far_apart(steps: tuple[int, ...], period: float | None) -> None:
    known = Pauses("checkpoint", steps, (1000.0,) * len(steps), 300, in_step=False)
    assert known.period == period and known.every == (period or 300 / len(steps))
    assert Pauses("unknown", steps, known.ms, 300, in_step=False).every == 300 / len(steps)


@pytest.mark.parametrize(("phase", "known"), [("train", True), ("eval", True), ("checkpoint", False)])
def test_rounds_are_recognised_by_the_time_before_each(phase: str, known: bool) -> None:
    # There is a rollout of 25 ms and 8 updates of 3 ms, before and after a profile that is not a full round.
    # Checkpoints are reported as pauses, not as rounds.
    gaps = [*([28.0] + [3.0] * 7) * 20, *[5.0] * 6, *[3.0] * 2, *([28.0] + [3.0] * 7) * 4]
    rounds = [
        mark._replace(phase=phase) if gap == 28.0 else mark
        for mark, gap in zip(marks(*gaps, profiled=range(161, 167)), [0.0, *gaps], strict=True)
    ]
    evidence = by_marks(rounds)
    assert evidence is not None and (evidence.round is not None) is known
    if evidence.round is not None:
        assert (evidence.round.steps, evidence.round.evaluates) == (8, phase == "eval")
        assert evidence.round.usual_ms == pytest.approx(3.0) and evidence.round.between_ms == pytest.approx(25.0, rel=0.05)
        assert "one in 8 is long" in evidence.notes[0]


def evaluated(gaps_ms: list[float], every: int, ms: float) -> list[Mark]:
    """Return marks of ``gaps_ms`` with an evaluation of ``ms`` before every ``every``-th step."""
    gaps = [gap + (ms if step % every == 0 else 0) for step, gap in enumerate(gaps_ms, 1)]
    return [Mark(step, end, "eval" if step and step % every == 0 else phase) for step, end, phase, *_ in marks(*gaps)]


@pytest.mark.parametrize(("every", "cpu_only"), [(20, True), (250, True), (250, False)])
def test_evaluations_between_steps_are_separated(every: int, cpu_only: bool) -> None:
    evidence = by_marks(evaluated([7.0] * 1000, every, 500.0), cpu_only=cpu_only)
    assert evidence is not None and evidence.ms == pytest.approx(7.0)
    assert f"evaluated {1000 // every} times (500 ms each)" in evidence.notes[0].replace("\xa0", " ")
    (evaluations,) = evidence.pauses
    assert (evaluations.reason, evaluations.in_step) == ("evaluation", False)
    assert (evaluations.every, evaluations.mean_ms) == (every, pytest.approx(500.0))


@pytest.mark.parametrize(("every", "cpu_only"), [(5, True), (20, False)])
def test_frequent_evaluations_are_part_of_the_step_time(every: int, cpu_only: bool) -> None:
    # A host ahead of its GPU waits for earlier steps in an evaluation, so frequent evaluations cannot be separated.
    evidence = by_marks(evaluated([7.0] * 1000, every, 50.0), cpu_only=cpu_only)
    assert evidence is not None and evidence.ms == pytest.approx(7.0 + 50.0 / every, rel=0.01)
    (evaluations,) = evidence.pauses
    assert evaluations.in_step and evaluations.ms_per_step == pytest.approx(50.0 / every, rel=0.02)


def test_queue_filling_after_an_evaluation_is_left_out() -> None:
    """The evaluation waits for the eight steps before it.

    After it, eight steps are launched ahead at 1 ms each.
    """
    stretch = [1.0] * 8 + [9.0] * 142
    evidence = by_marks(evaluated(stretch * 6, 150, 400.0))
    assert evidence is not None and evidence.ms == pytest.approx(9.0)


def every_fifteenth(*ms: float) -> list[Mark]:
    """Return marks of steps of 30 ms, with an evaluation of the given length in each fifteenth step."""
    gaps = [gap for pause in ms for gap in [*[30.0] * 14, 30.0 + pause]]
    return [mark._replace(phase="eval") if mark.step and not mark.step % 15 else mark for mark in marks(*gaps)]


def test_the_first_evaluation_is_warm_up_if_all_later_ones_are_much_shorter() -> None:
    first = by_marks(every_fifteenth(600, 80, 100, 80, 90))
    assert first is not None and first.ms == pytest.approx((30 * 74 + 350) / 74, rel=0.05), "not 42.7"
    assert first.pauses[0].steps == (30, 45, 60, 75)
    assert any("The first evaluation, 630" in note and "left out as warm-up" in note for note in first.notes)
    for pauses in ((600, 80, 100, 400, 90), (600, 80, 100)):
        slow = by_marks(every_fifteenth(*pauses))
        assert slow is not None and len(slow.pauses[0].steps) == len(pauses)
