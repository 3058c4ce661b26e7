"""How a job ended whose child left no word of it, in sentences."""

from __future__ import annotations

import signal

DEADLINE_SECONDS = 2 * 3600  # 20 million events take minutes; beyond two hours the child is stuck


def unstarted_sentence(error: OSError) -> str:
    """Say that the system could not start a child: it lacks memory, processes or open files."""
    return (
        f"The system could not start the reader ({error.strerror}). Close other programs or restart the server, "
        "then dismiss this and try again."
    )


def crash_sentence(code: int | None, *, kept: bool = False) -> str:
    """Say in words how a child ended that left no result; ``code`` is its exit status, None for the deadline.

    ``kept``: it had read the files and made runs of them, and ended while it analysed these.
    """
    if code is None:
        return f"Reading took longer than {DEADLINE_SECONDS // 3600} hours and was stopped. Profile fewer steps, or ingest the file with sawtooth ingest."
    if code == -signal.SIGKILL:
        return "The reader was stopped by the system, most likely for lack of memory. Free some memory or profile fewer steps, then drop the file again."
    if code == -signal.SIGXCPU:
        return "Reading took more processor time than is allowed and was stopped. Profile fewer steps, or ingest the file with sawtooth ingest."
    if kept:
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return f"The file was read and its run is listed, but its analysis failed ({how}). This is a bug in Sawtooth."
    if code < 0:
        return f"The reader crashed on this file (signal {-code}). Nothing of it was kept, and other runs are not affected."
    return f"The reader ended without a result (status {code}). Nothing of the file was kept."
