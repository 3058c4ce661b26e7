"""Tests of the parts of a step. The expected times were computed by hand."""

import pytest

from sawtooth.ingest.loop.step_parts import StepSpan, step_parts, with_first_waits

MS = 1_000_000


def epochs(long_ms: float = 0.0, phase: str = "train") -> list[StepSpan]:
    """Return four epochs of ten steps, with 8 ms of work in each step.

    The first step of an epoch waits 52 ms for its batch, and other steps wait 2 ms. The sixth step of each epoch takes ``long_ms`` longer.
    """
    steps = []
    for step in range(40):
        first, long = step % 10 == 0, step % 10 == 5
        ns = int((60 if first else 10 + (long_ms if long else 0)) * MS)
        wait, first_ns = (52 * MS, 50 * MS) if first else (2 * MS, 0)
        steps.append(StepSpan(step, ns, phase if long else "train", wait, first_ns, 30 * MS if first else 0))
    return steps


def test_waits_for_first_batches_are_part_of_all_waits() -> None:
    parts = step_parts(epochs(), [], cpu_only=True)
    assert parts is not None
    assert (parts.waiting_ms, parts.first_ms, parts.starting_ms) == pytest.approx((7.0, 4.8, 3.0))
    assert (parts.epochs, parts.epoch_steps, parts.persistent_workers, parts.apart_ms) == (4, 10, False, ())


@pytest.mark.parametrize(("phase", "kind"), [("eval", "evaluation"), ("checkpoint", "checkpoint"), ("train", "unknown")])
def test_rare_work_is_separate_unless_the_profile_shows_it(phase: str, kind: str) -> None:
    steps = epochs(200.0, phase)
    parts, gpu_parts, parts_of_shown = (
        step_parts(steps, profiled, cpu_only=cpu_only) for profiled, cpu_only in (([], True), ([], False), (steps[3:8], True))
    )
    assert parts is not None and gpu_parts is not None and parts_of_shown is not None
    assert parts.apart_ms == ((kind, pytest.approx(20.0)),)
    assert gpu_parts.apart_ms == (parts.apart_ms if kind != "unknown" else ())
    assert (parts_of_shown.apart_ms, parts_of_shown.profiled_apart_ms) == ((), pytest.approx(40.0))


def test_the_first_batch_after_an_evaluation_belongs_to_the_next_step() -> None:
    """An evaluation takes 300 ms, and the wait for the next epoch's first batch 50 ms."""
    spans = [StepSpan(0, 10 * MS, "train"), StepSpan(1, 350 * MS, "eval", 50 * MS, 50 * MS), StepSpan(2, 10 * MS, "train")]
    moved = with_first_waits(spans, {"eval"})
    assert [(span.ns // MS, span.first_ns // MS) for span in moved] == [(10, 0), (300, 0), (60, 50)]
    assert with_first_waits(spans, set()) == spans
