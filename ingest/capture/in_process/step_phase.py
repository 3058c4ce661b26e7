"""Phase of a step: whether an evaluation or a checkpoint came before it. Standard library only."""

from __future__ import annotations

from collections.abc import Callable


def phase_since_last(counts: Callable[[], tuple[int, int]]) -> Callable[[int], str]:
    """Return a function that returns the phase of an optimizer's mark: eval, checkpoint or train.

    The function compares ``counts()`` (of evaluations and saves) with the counts at its last call for this optimizer. If both changed, the
    phase is eval.
    """
    before: dict[int, tuple[int, int]] = {}
    began = counts()

    def since(optimizer: int) -> str:
        evaluated, saved = before.get(optimizer, began)
        now = before[optimizer] = counts()
        return "eval" if evaluated != now[0] else "checkpoint" if saved != now[1] else "train"

    return since
