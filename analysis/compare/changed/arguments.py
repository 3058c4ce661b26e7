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
    arguments_a, arguments_b = arguments_of(a), arguments_of(b)
    changed = [
        flag
        for flag in (*arguments_b, *(flag for flag in arguments_a if flag not in arguments_b))
        if arguments_a.get(flag) != arguments_b.get(flag)
    ]
    programs = [("program", "Program", program_of(a), program_of(b))] if program_of(a) != program_of(b) else []
    rows = [*programs]
    for flag in changed:
        rows += (
            _words(arguments_a.get(flag, ""), arguments_b.get(flag, ""))
            if flag == POSITIONAL
            else [(flag, flag, _with_flag(flag, arguments_a), _with_flag(flag, arguments_b))]
        )
    return tuple(SetupDifference(f"argument {key}", label, value_a, value_b, (), ()) for key, label, value_a, value_b in rows)


def _words(a: str, b: str) -> list[tuple[str, str, str, str]]:
    """Return the words without a flag that differ.

    They are compared by position if both sides have the same number of words. Otherwise all of them are one difference.
    """
    words_a, words_b = a.split(), b.split()
    if len(words_a) != len(words_b):
        return [(POSITIONAL, "Arguments", a or ABSENT, b or ABSENT)]
    places = [place for place, (word_a, word_b) in enumerate(zip(words_a, words_b, strict=True)) if word_a != word_b]
    return [
        (f"{POSITIONAL} {n}", "Argument" if len(words_a) == 1 else f"Argument {n + 1}", words_a[n], words_b[n]) for n in places
    ]


def _with_flag(flag: str, arguments: dict[str, str]) -> str:
    value = arguments.get(flag)
    if value is None:
        return ABSENT
    return value if value and not names_secret(flag) else PRESENT
