"""Step marks: the host time at which each step of a training loop ended.

A file of marks is JSON lines; a last line that is torn (the job was killed) is skipped by readers. The first line is the head::

    {"k": "marks", "v": 1, "recorder": "0.1.0", "host": "node1", "boot": "…", "pid": 4711, "gpu": "GPU-…", "rank": 0, "w": 1700000000000000000}

``gpu`` is the UUID of the GPU that the process computes on, null where it uses none yet; ``rank`` is null outside a job of several ranks,
``w`` wall nanoseconds since 1970 (UTC). Where no optimizer makes the steps the head has a ``sign`` (backward, gradient, call or batch: what ended
each step) and ``of``, the class of the module whose calls they are. Each further line is the end of one step on the host::

    {"k": "mark", "i": 17, "w": 1700000000123456789, "p": "train", "o": 0, "l": 1, "at": ["train.py:12"], "b": 64, "n": 1024}

    i   index of the step, from 0, of this optimizer
    w   wall nanoseconds; steps of the wall clock do not show in it (the head's wall time plus monotonic time since)
    p   phase: train, profile (torch.profiler runs or is being started or written during the step that ends here), eval (the model was set
        to evaluate since this optimizer's step before), checkpoint (torch.save ran since then, and nothing was evaluated)
    o   which optimizer stepped, by first appearance (a GAN has two); 0 where the loop itself marks its steps
    l   the place in the program that the step was called from, by first appearance; absent: the first
    at  that place's lines of the user's files, innermost first, in its first mark alone
    b   samples in the batch, n its length in tokens; absent where not known

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
PHASES = ("train", "profile", "eval", "checkpoint")
# of a line: step, wall ns, phase and optimizer, as the writer below writes it
MARK = re.compile(rb'"i": (\d+), "w": (\d+), "p": "(\w+)", "o": (\d+)')
AT_ONCE = 64  # marks put into words: a few are quicker so than each by itself in a processor whose caches are the training's
FLUSH_NS = 1_000_000_000  # a killed job loses the marks of one second at most


Site = tuple[int, Sequence[str]]  # number and lines
# step, monotonic ns, phase, optimizer, site, samples, tokens
Noted = tuple[int, int, str, int, Site | None, float | None, float | None]


class MarkWriter:
    """Appends marks to ``path``. Raises OSError where that cannot be written."""

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
        self._noted: list[Noted] = []
        self._sites: set[int] = set()
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
    ) -> None:
        """Note that step ``index`` ended now, by the monotonic clock.

        ``site`` is the number and lines of its call site. The step had ``batch`` samples of ``length`` tokens, if known.
        """
        if now_ns is None:
            now_ns = self._monotonic_ns()
        self._noted.append((index, now_ns, phase, optimizer, site, batch, length))
        if now_ns - self._written_ns >= FLUSH_NS:
            self._written_ns = now_ns
            self.flush()
        elif len(self._noted) >= AT_ONCE:
            self._put_in_words()

    def _put_in_words(self) -> None:
        noted, self._noted = self._noted, []
        for index, now_ns, phase, optimizer, site, batch, length in noted:
            known = ""
            if site is not None and site[0] not in self._sites:
                self._sites.add(site[0])
                known = f', "l": {site[0]}, "at": {json.dumps(site[1])}'
            elif site is not None and site[0]:
                known = f', "l": {site[0]}'
            if batch is not None:
                known += f', "b": {batch:g}'
            if length is not None:
                known += f', "n": {length:g}'
            wall_ns = now_ns + self._offset_ns
            self._lines.append(f'{{"k": "mark", "i": {index}, "w": {wall_ns}, "p": "{phase}", "o": {optimizer}{known}}}')

    def flush(self) -> None:
        """Write pending lines in one call, so that only the file's last line can be incomplete."""
        self._put_in_words()
        lines, self._lines = self._lines, []
        unwritten = ("\n".join(lines) + "\n").encode() if lines else b""
        while unwritten:  # a disk that becomes full takes a part, and refuses the rest
            unwritten = unwritten[os.write(self._file, unwritten) :]

    def close(self) -> None:
        """Write the rest and close the file; a second close does nothing."""
        if self._file >= 0:
            try:
                self.flush()
            finally:
                os.close(self._file)
                self._file = -1
