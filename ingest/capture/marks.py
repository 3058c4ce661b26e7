"""Step marks: the host time at which each step of a training loop ended.

A file of marks has one JSON object per line. Readers skip an incomplete last line, which a killed job leaves. The first line is the head::

    {"k": "marks", "v": 1, "recorder": "0.1.0", "host": "node1", "boot": "…", "pid": 4711, "gpu": "GPU-…", "rank": 0, "w": 1700000000000000000}

``gpu`` is the UUID of the process's current GPU, null if it uses none yet. ``rank`` is null outside a job of several ranks. ``w`` is the
wall time in nanoseconds since 1970 (UTC). If no optimizer makes the steps, ``sign`` is the kind of step boundary (backward, gradient, call
or batch), and ``of`` is the class of the called module. Each further line is the end of one step on the host::

    {"k": "mark", "i": 17, "w": 1700000000123456789, "p": "train", "o": 0, "l": 1, "at": ["train.py:12"], "b": 64, "n": 1024}

    i   index of the step, from 0, of this optimizer
    w   time in ns: the head's wall time plus the monotonic time since the head. Corrections of the wall clock do not change it.
    p   phase:
        profile     torch.profiler ran or started during this step
        recorder    the profile ended and was written during this step or the step before
        eval        the model was set to evaluate since this optimizer's last step
        checkpoint  torch.save ran since this optimizer's last step, without an evaluation
        train       all other steps
    o   number of the optimizer, in the order of first steps (a GAN has two optimizers); 0 if the loop itself marks its steps
    l   number of the place in the program that called the step, in the order of first calls; absent for place 0
    at  lines of this place in the user's files, innermost first; only in the place's first mark
    by  library whose training loop called the step (Transformers or Lightning); only beside ``at``, absent if the loop is the user's
    b   samples in the batch; n is their length in tokens; both are absent if unknown
    d   ns for which the loop waited for DataLoader batches since the previous mark; absent without a wait
    f   the part of d before an epoch's first batch and after its last one; absent if it is 0
    s   the part of f for starting the epoch's iterator; absent if f is 0

Standard library only. A mark costs half a microsecond; lines are written once a second.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..sampler.clock import boot_id

FORMAT_VERSION = 1
PHASES = ("train", "profile", "recorder", "eval", "checkpoint")
# Matches the step, the wall time in ns, the phase and the optimizer of a line that MarkWriter writes.
MARK = re.compile(rb'"i": (\d+), "w": (\d+), "p": "(\w+)", "o": (\d+)')
# Marks are formatted in groups of this size. Formatting them one by one takes longer, because the training fills the processor's caches.
FORMAT_GROUP = 64
FLUSH_NS = 1_000_000_000  # Lines are written at this interval, so a killed job loses the marks of one second at most.


Site = tuple[int, Sequence[str], str]  # The number, the lines and the trainer of a call site.
# The step, monotonic time in ns, phase, optimizer, call site, samples, tokens, and waits in ns (d, f and s above) of a mark.
PendingMark = tuple[int, int, str, int, Site | None, float | None, float | None, tuple[int, int, int] | None]


class MarkWriter:
    """Writer that appends marks to ``path``. Raises OSError if ``path`` cannot be written."""

    def __init__(
        self,
        path: Path,
        *,
        rank: int | None = None,
        recorder: str = "",
        gpu: str | None = None,
        boundary: tuple[str, str] | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        started_ns = wall_ns()
        self._offset_ns = started_ns - monotonic_ns()
        head = {"k": "marks", "v": FORMAT_VERSION, "recorder": recorder, "host": platform.node(), "boot": boot_id()}
        if boundary is not None:
            head["sign"], head["of"] = boundary
        self._lines = [json.dumps({**head, "pid": os.getpid(), "gpu": gpu, "rank": rank, "w": started_ns})]
        self._pending: list[PendingMark] = []
        self._written_sites: set[int] = set()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._written_ns = 0

    def mark(
        self,
        index: int,
        *,
        now_ns: int | None = None,
        phase: str = "train",
        optimizer: int = 0,
        site: Site | None = None,
        batch: float | None = None,
        length: float | None = None,
        waited: tuple[int, int, int] | None = None,
    ) -> None:
        """Note that step ``index`` ended at ``now_ns`` of the monotonic clock; None means now.

        ``site`` is the step's call site. The step had ``batch`` samples of ``length`` tokens, if known. ``waited`` has d, f and s of the
        format, in ns.
        """
        if now_ns is None:
            now_ns = self._monotonic_ns()
        self._pending.append((index, now_ns, phase, optimizer, site, batch, length, waited))
        if now_ns - self._written_ns >= FLUSH_NS:
            self._written_ns = now_ns
            self.flush()
        elif len(self._pending) >= FORMAT_GROUP:
            self._format_lines()

    def _format_lines(self) -> None:
        pending, self._pending = self._pending, []
        for index, now_ns, phase, optimizer, site, batch, length, waited in pending:
            fields = ""
            if site is not None and site[0] not in self._written_sites:
                self._written_sites.add(site[0])
                fields = f', "l": {site[0]}, "at": {json.dumps(site[1])}' + (f', "by": "{site[2]}"' if site[2] else "")
            elif site is not None and site[0]:
                fields = f', "l": {site[0]}'
            if batch is not None:
                fields += f', "b": {batch:g}'
            if length is not None:
                fields += f', "n": {length:g}'
            if waited is not None:
                fields += f', "d": {waited[0]}' + (f', "f": {waited[1]}, "s": {waited[2]}' if waited[1] else "")
            wall_ns = now_ns + self._offset_ns
            self._lines.append(f'{{"k": "mark", "i": {index}, "w": {wall_ns}, "p": "{phase}", "o": {optimizer}{fields}}}')

    def flush(self) -> None:
        """Write pending lines in one call, so that only the file's last line can be incomplete."""
        self._format_lines()
        lines, self._lines = self._lines, []
        unwritten = ("\n".join(lines) + "\n").encode() if lines else b""
        while unwritten:  # If the disk becomes full, only a part of the text may be written.
            unwritten = unwritten[os.write(self._file, unwritten) :]

    def close(self) -> None:
        """Write the rest and close the file; a second close does nothing."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1
