"""Tests of choosing the loop of a training for its step marks.

The optimizers and the lines that call their steps decide.
"""

import pytest

from sawtooth.analysis.telemetry.marked_loops import MarkRow, choose_loop

MS = 1_000_000
WARM_UP, MAIN, LAST_BATCH = (f"train.py:12 < train.py:{line}" for line in (40, 55, 60))


class Training:
    """Marks of several loops in sequence."""

    def __init__(self) -> None:
        self.rows: list[MarkRow] = []
        self._now_ns = 0
        self._steps = [0, 0]

    def run(self, steps: int, ms: float, site: str | None, *, optimizer: int = 0, phase: str = "train") -> "Training":
        for _ in range(steps):
            self._now_ns += int(ms * MS)
            self.rows.append(MarkRow(optimizer, self._steps[optimizer], self._now_ns, phase, site))
            self._steps[optimizer] += 1
        return self


def test_profiled_loop_is_chosen_and_others_are_named_by_line() -> None:
    training = Training().run(200, 10, WARM_UP).run(300, 50, MAIN).run(6, 90, MAIN, phase="profile").run(100, 50, MAIN)
    marks, others, *_ = choose_loop(training.rows)
    assert [mark.step for mark in marks] == list(range(200, 606))
    assert others.replace("\xa0", " ") == (
        "The report is about the loop that steps at train.py:55. "
        "Another loop, at train.py:40, made 200 steps of 10 ms before it. It is not included."
    )


def test_longest_loop_is_chosen_without_a_profile() -> None:
    marks, others, *_ = choose_loop(Training().run(500, 10, WARM_UP).run(300, 50, MAIN).run(50, 10, "eval.py:3").rows)
    assert len(marks) == 300
    assert others.replace("\xa0", " ") == (
        "The report is about the loop that steps at train.py:55. "
        "2 other loops are not included. The longest of them, at train.py:40, made 500 steps of 10 ms before it."
    )


def test_two_optimizers_at_one_line_are_distinguished() -> None:
    """Layers that are trained one after the other share the line, not the optimizer."""
    training = Training().run(30, 50, MAIN).run(5, 90, MAIN, phase="profile").run(100, 10, MAIN, optimizer=1)
    assert choose_loop(training.rows).about_others.replace("\xa0", " ") == (
        "The report is about the loop of one optimizer that steps at train.py:12. "
        "Another optimizer made 100 steps of 10 ms after it at the same line."
    )


def test_alternating_loops_are_two_loops() -> None:
    training = Training()
    for _ in range(4):
        training.run(30, 10, WARM_UP).run(40, 50, MAIN)
    marks, others, *_ = choose_loop(training.rows)
    assert len(marks) == 160 and "120 steps of 10 ms in turns with it" in others.replace("\xa0", " ")


def test_loop_that_several_lines_call_is_one_loop() -> None:
    """One function trains and is called from two lines; the host became 20 % slower in between."""
    training = Training().run(200, 50, WARM_UP).run(100, 60, MAIN).run(6, 90, MAIN, phase="profile").run(50, 55, WARM_UP)
    marks, others, *_ = choose_loop(training.rows)
    assert [mark.step for mark in marks] == list(range(356)) and others == ""


def test_loops_at_different_lines_are_different_even_if_their_steps_are_equal() -> None:
    marks, others, *_ = choose_loop(Training().run(300, 50, MAIN).run(200, 50, "tune.py:3 < train.py:55").rows)
    assert len(marks) == 300 and "200 steps of 50 ms" in others.replace("\xa0", " ")


@pytest.mark.parametrize("alone", [1, 3])
def test_line_with_occasional_steps_is_part_of_the_loop(alone: int) -> None:
    # Examples are the last batches of each epoch, and the very first step, which PyTorch compiles from another place.
    training = Training().run(1, 900, "elsewhere.py:1")
    for _ in range(5):
        training.run(30, 10, MAIN).run(alone, 10, LAST_BATCH)
    marks, others, *_ = choose_loop(training.rows)
    assert len(marks) == 1 + 5 * (30 + alone) and others == ""


def test_replaced_profile_is_ignored() -> None:
    """Both loops were profiled. The trace is of the second, which ran for longer."""
    training = Training().run(50, 10, WARM_UP).run(7, 20, WARM_UP, phase="profile").run(50, 10, WARM_UP)
    training.run(100, 50, MAIN).run(6, 90, MAIN, phase="profile")
    traced = (training.rows[-6].end_ns, training.rows[-1].end_ns)
    assert len(choose_loop(training.rows, traced).marks) == 106
    assert len(choose_loop(training.rows, None).marks) == 107, "the first loop has one more profiled step"


def test_replaced_profile_of_another_optimizer_is_ignored() -> None:
    training = Training().run(50, 10, WARM_UP).run(6, 20, WARM_UP, phase="profile")
    training.run(100, 50, MAIN, optimizer=1).run(6, 90, MAIN, optimizer=1, phase="profile")
    traced = (training.rows[-6].end_ns, training.rows[-1].end_ns)
    assert len(choose_loop(training.rows, traced).marks) == 106


def test_recordings_without_call_sites_mention_another_loop() -> None:
    training = Training().run(150, 14, None).run(6, 14, None, phase="profile").run(500, 45, None, optimizer=1)
    marks, others, *_ = choose_loop(training.rows)
    assert len(marks) == 156
    assert (
        others.replace("\xa0", " ") == "Another loop made 500 steps of 45 ms after these. The report is about this loop only."
    )
    assert choose_loop([]).marks == []
