"""Phase of a step: whether an evaluation or a checkpoint came before the step. Standard library only."""

from __future__ import annotations

from collections.abc import Callable


def phase_reader(counts: Callable[[], tuple[int, int]]) -> Callable[[int], str]:
    """Return a function that returns the phase of an optimizer's mark: eval, checkpoint or train.

    ``counts`` returns the numbers of evaluations and checkpoints so far. The phase is eval if an evaluation came after the
    optimizer's previous mark. Otherwise the phase is checkpoint if a checkpoint came after that mark.
    """
    last_counts: dict[int, tuple[int, int]] = {}
    first_counts = counts()

    def phase(optimizer: int) -> str:
        last_evaluations, last_checkpoints = last_counts.get(optimizer, first_counts)
        evaluations, checkpoints = last_counts[optimizer] = counts()
        if evaluations != last_evaluations:
            return "eval"
        return "checkpoint" if checkpoints != last_checkpoints else "train"

    return phase
