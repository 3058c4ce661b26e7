"""What the end of a training's output says about its failure."""

from __future__ import annotations

LONGEST_LINE = 200  # Characters of a line that are shown.
MEMORY = (
    "out of memory",
    "outofmemoryerror",
    "memoryerror",
    "can't allocate memory",
    "cannot allocate memory",
    "killed by signal: killed",
)
PORT_TAKEN = ("address already in use", "eaddrinuse")


def last_line(tail: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip()[:LONGEST_LINE] for line in reversed(tail.splitlines()) if line.strip()), "")


def memory_error_in(tail: str) -> str | None:
    """Return the last line that names a lack of memory; earlier ones may be code."""
    lines = reversed(tail.splitlines())
    return next((line.strip()[:LONGEST_LINE] for line in lines if any(text in line.lower() for text in MEMORY)), None)


def names_taken_port(tail: str) -> bool:
    """Return whether the output names a port that is in use."""
    return any(text in tail.lower() for text in PORT_TAKEN)
