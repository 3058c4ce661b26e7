"""Tasks for the workers of a map, in a module that their processes can import.

Each task writes a line to a log for every source that it reads.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sawtooth.analysis.cluster.mapping import SourceOutcome, summary_name
from sawtooth.analysis.cluster.storage import SourceVersion


def read(source: SourceVersion, to: str) -> SourceOutcome:
    """Summarise a source as its own bytes."""
    path = Path(source.url)
    with (path.parent.parent / "read.log").open("a") as log:
        log.write(f"{path.name} {os.getpid()}\n")
    Path(to).mkdir(exist_ok=True)
    (Path(to) / summary_name(source)).write_bytes(path.read_bytes())
    return SourceOutcome(source.url, ranks=1)


def die_at_first(source: SourceVersion, to: str) -> SourceOutcome:
    """Do the same as ``read``, but kill the process at certain sources.

    If the source's name contains "once", only the first process that reads it is killed. If it contains "always", every
    process that reads it is killed.
    """
    path = Path(source.url)
    tries = path.parent.parent / f"{path.name}.tries"
    with tries.open("a") as log:
        log.write("x")
    if "always" in path.name or ("once" in path.name and len(tries.read_text()) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return read(source, to)
