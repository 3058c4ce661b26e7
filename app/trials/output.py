"""Find the reason of a failure at the end of a training's output."""

from __future__ import annotations

MAX_LINE_LENGTH = 200  # Characters of a line that are shown.
MEMORY_ERRORS = (
    "out of memory",
    "outofmemoryerror",
    "memoryerror",
    "can't allocate memory",
    "cannot allocate memory",
    "killed by signal: killed",
)
PORT_ERRORS = ("address already in use", "eaddrinuse")


def last_line(tail: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip()[:MAX_LINE_LENGTH] for line in reversed(tail.splitlines()) if line.strip()), "")


def memory_error_in(tail: str) -> str | None:
    """Return the last line that reports a lack of memory; earlier lines may be code in a traceback."""
    lines = reversed(tail.splitlines())
    return next((line.strip()[:MAX_LINE_LENGTH] for line in lines if any(text in line.lower() for text in MEMORY_ERRORS)), None)


def names_taken_port(tail: str) -> bool:
    """Return whether the output names a port that is in use."""
    return any(text in tail.lower() for text in PORT_ERRORS)
