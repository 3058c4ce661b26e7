"""Sentences about a job whose child process left no result."""

from __future__ import annotations

import signal

DEADLINE_SECONDS = 2 * 3600  # 20 million events take minutes. A child that runs longer than two hours does not end.


def unstarted_sentence(error: OSError) -> str:
    """Return a sentence for a child that could not start, for lack of memory, processes or open files."""
    return (
        f"The system could not start the reader ({error.strerror}). Close other programs or restart the server. "
        "Then dismiss this message and try again."
    )


def crash_sentence(code: int | None, *, has_runs: bool = False) -> str:
    """Return a sentence about the end of a child without a result.

    ``code`` is the exit status, or None if the child exceeded the deadline. ``has_runs`` says whether the child had already made
    runs of the files.
    """
    if code is None:
        return f"Reading took longer than {DEADLINE_SECONDS // 3600} hours and was stopped. Profile fewer steps, or ingest the file with sawtooth ingest."
    if code == -signal.SIGKILL:
        return "The system stopped the reader, most likely for lack of memory. Free some memory or profile fewer steps, then drop the file again."
    if code == -signal.SIGXCPU:
        return "Reading took more processor time than is allowed and was stopped. Profile fewer steps, or ingest the file with sawtooth ingest."
    if has_runs:
        status = f"signal {-code}" if code < 0 else f"status {code}"
        return f"The file was read and its run is listed, but its analysis failed ({status}). This is a bug in Sawtooth."
    if code < 0:
        return f"The reader crashed on this file (signal {-code}). The file was not stored, and other runs are not affected."
    return f"The reader ended without a result (status {code}). The file was not stored."
