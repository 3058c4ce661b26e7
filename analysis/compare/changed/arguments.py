"""Differences between the command lines of two trainings that `sawtooth run` started."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.compare.changed.differences import SetupDifference
from sawtooth.ingest.loop.command import POSITIONAL, arguments_of, names_secret, program_of

ABSENT, PRESENT = "not set", "set"
PROGRAM = "argument program"  # Key of the difference between the programs.


def changed_arguments(a: Sequence[str], b: Sequence[str]) -> tuple[SetupDifference, ...]:
    """Return the changed program and each changed argument, in B's order.

    The result is empty if a command is not known (empty).
    """
    if not a or not b:
        return ()
    left, right = arguments_of(a), arguments_of(b)
    changed = [flag for flag in (*right, *(flag for flag in left if flag not in right)) if left.get(flag) != right.get(flag)]
    programs = [("program", "Program", program_of(a), program_of(b))] if program_of(a) != program_of(b) else []
    rows = [*programs]
    for flag in changed:
        rows += (
            _words(left.get(flag, ""), right.get(flag, ""))
            if flag == POSITIONAL
            else [(flag, flag, _shown(flag, left), _shown(flag, right))]
        )
    return tuple(SetupDifference(f"argument {key}", what, before, after, (), ()) for key, what, before, after in rows)


def _words(a: str, b: str) -> list[tuple[str, str, str, str]]:
    """Return the words without a flag that differ.

    They are compared by position if both sides have the same number of words. Otherwise all of them are one difference.
    """
    left, right = a.split(), b.split()
    if len(left) != len(right):
        return [(POSITIONAL, "Arguments", a or ABSENT, b or ABSENT)]
    places = [place for place, (before, after) in enumerate(zip(left, right, strict=True)) if before != after]
    return [(f"{POSITIONAL} {n}", "Argument" if len(left) == 1 else f"Argument {n + 1}", left[n], right[n]) for n in places]


def _shown(flag: str, arguments: dict[str, str]) -> str:
    value = arguments.get(flag)
    if value is None:
        return ABSENT
    return value if value and not names_secret(flag) else PRESENT
