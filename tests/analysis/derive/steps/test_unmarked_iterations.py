"""Tests of a loop that marks only some of its iterations.

The number of kernels between two marks gives the number of iterations.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace

KERNELS, ITERATION_US = 12, 1_200


def loop(
    marked: list[int],
    iterations: int,
    *,
    name: str = "iteration{}",
    popped: bool = True,
    update_every: int = 0,
    extra: int | None = None,
) -> ChromeTrace:
    """Add iterations of 1.2 ms on a busy GPU, with a range around those in ``marked``.

    There is a fused update every ``update_every`` iterations. Before iteration ``extra``, 30 further kernels run.
    """
    trace = ChromeTrace()
    at = 0.0
    for k in range(iterations):
        begin, end = at, at + ITERATION_US
        updates = ["fused_update"] if update_every and (k + 1) % update_every == 0 else []
        evaluation = ["evaluate"] * 30 if k == extra else []
        names = [*evaluation, *(f"kernel_{i}" for i in range(KERNELS)), *updates]
        width = ITERATION_US / len(names)
        for i, kernel in enumerate(names):
            here = at + i * width
            trace.launch((here, here + 2), (here + 3, here + width), kernel)
        at = end
        if k in marked:
            trace.host("user_annotation", name.format(k), begin, end if popped else iterations * ITERATION_US)
    return trace


def step_ms(result: RunResult) -> float | None:
    return result.ranks[0].metrics["step_time_ms"].value


@pytest.mark.parametrize("popped", [True, False])
@pytest.mark.parametrize("name", ["iteration{}", "train iter {} of 90"])
def test_ranges_around_every_third_iteration_do_not_change_the_step(tmp_path: Path, name: str, popped: bool) -> None:
    result = analysed(tmp_path, loop([0, 3, 6, 9, 12], 14, name=name, popped=popped))
    assert step_ms(result) == pytest.approx(1.2, rel=0.01)


def test_ranges_of_one_name_around_some_iterations_do_not_change_the_step(tmp_path: Path) -> None:
    assert step_ms(analysed(tmp_path, loop([1, 3, 4, 8, 12], 14, name="logged"))) == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize("marked", [[2, 5, 8, 11], [0, 3, 6, 9, 12]])
def test_one_update_for_three_micro_batches_is_one_step(tmp_path: Path, marked: list[int]) -> None:
    """The range is around the micro-batch with the update, or around the first one."""
    result = analysed(tmp_path, loop(marked, 15, update_every=3))
    assert step_ms(result) == pytest.approx(3.6, rel=0.01)


def test_an_interval_with_other_work_causes_a_doubt(tmp_path: Path) -> None:
    result = analysed(tmp_path, loop([0, 3, 6, 9, 12, 15], 17, extra=8))
    assert result.ranks[0].metrics["step_time_ms"].trust != "ok"
