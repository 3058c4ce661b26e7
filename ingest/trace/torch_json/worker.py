"""Decode and file blocks in further processes, so that a large trace is read by several cores.

Each worker shares a nameless temporary file with its parent: a block goes in, the pickled columns come out in its place,
and only the sizes travel through pipes. Results are taken in the order of the file, so ids do not depend on timing. A
worker ends when its parent does, since its input ends then.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.torch_json.columns import Filed, Filing
from sawtooth.ingest.trace.torch_json.tables import Origin, Trace
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.events import BRACKETS, inside, strict
from sawtooth.place import IMPORT_ROOT

SLOT_BYTES = 6 << 20  # a block of 1 MB plus the longest event fits, and so do its columns
SLOTS = 4  # blocks a worker holds: one in work, the others waiting while the parent sorts what it has
WAITING = 40  # blocks that may wait, for each worker, to be merged in the order of the file: while it starts, the parent files as many as thirty
MOST_WORKERS = 3  # the parent inflates, hashes and stores; more workers than this would wait for it
WORTH_BYTES = 3 << 20  # of a compressed source; a smaller one is read before a worker has started
FAILURES = 4  # blocks that do not decode after which the rest is read without workers
# Blocks come and go: asking anew costs 8 %.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
FORGET = -2  # in place of a size: file what follows as if it came first
HEADER = struct.Struct("<Iq")  # slot, size of the block or of the result; -1 for a block that does not decode
START = "import sys; sys.path.insert(0, sys.argv[1]); from sawtooth.ingest.trace.torch_json.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"


def worker_count(total_bytes: int) -> int:
    """Return how many workers a source of that size on disk is worth on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(cores - 1, MOST_WORKERS) if total_bytes >= WORTH_BYTES and os.name == "posix" else 0


def serve(descriptor: int, name_length: int) -> None:
    """Be a worker: file the blocks that the parent announces on standard input until it closes."""
    gc.disable()
    filing = Filing(name_length)
    with mmap.mmap(descriptor, SLOTS * SLOT_BYTES) as shared:
        while header := sys.stdin.buffer.read(HEADER.size):
            slot, size = HEADER.unpack(header)
            if size == FORGET:
                filing = Filing(name_length)
                continue
            begin = slot * SLOT_BYTES
            events = inside(memoryview(shared)[begin : begin + size + len(BRACKETS)])
            result = b""
            if events is not None:
                filing.add(events)
                del events
                result = pickle.dumps(filing.take(), protocol=5)
            if result and len(result) <= SLOT_BYTES:
                shared[begin : begin + len(result)] = result
            else:
                result = b""
            sys.stdout.buffer.write(HEADER.pack(slot, len(result) or -1))
            sys.stdout.buffer.flush()


class Worker:
    """One further process."""

    def __init__(self, folder: Path, name_length: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed by close)
        self._file.truncate(SLOTS * SLOT_BYTES)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(
                self._file.fileno(), 0, SLOTS * SLOT_BYTES
            )  # a page that a full disk cannot hold would kill the process
        self._shared = mmap.mmap(self._file.fileno(), SLOTS * SLOT_BYTES)
        root = str(IMPORT_ROOT)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, root, str(self._file.fileno()), str(name_length)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, **KEEP_MEMORY},
            pass_fds=[self._file.fileno()],
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.origin = Origin()
        self.free = deque(range(SLOTS))

    def send(self, block: memoryview) -> None:
        """Let the worker file ``block``; there must be a free slot. Raises OSError when the worker died."""
        slot = self.free[0]
        begin = slot * SLOT_BYTES + 1  # a bracket goes before it, and one behind
        self._shared[begin : begin + len(block)] = block
        self._in.write(HEADER.pack(slot, len(block)))
        self.free.popleft()

    def forget(self) -> None:
        """Start anew with ids, after results were thrown away. Raises OSError as ``give``."""
        self.origin = Origin()
        self._in.write(HEADER.pack(0, FORGET))

    def ready(self) -> bool:
        """Tell whether ``result`` returns at once."""
        return bool(select.select([self._out], [], [], 0)[0])

    def result(self) -> Filed | None:
        """Wait for the oldest block given and return what it held; None where it does not decode. Raises OSError as ``give``."""
        header = self._out.read(HEADER.size)
        if len(header) < HEADER.size:
            raise ChildProcessError("a worker ended early")
        slot, size = HEADER.unpack(header)
        self.free.append(slot)
        return None if size < 0 else pickle.loads(self._shared[slot * SLOT_BYTES : slot * SLOT_BYTES + size])

    def close(self) -> None:
        """End the process and free what was shared with it."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):  # it may hold what a dead worker never read
            self._in.close()
        self._out.close()
        self._shared.close()
        self._file.close()


class Reading:
    """Reads a document into a trace, with workers where they are worth it."""

    def __init__(self, document: Document, trace: Trace, limits: Limits, folder: Path, workers: int) -> None:
        self._document, self._trace = document, trace
        self._name_length = limits.name_length
        self._filing, self._origin = Filing(limits.name_length), Origin()
        self._workers: list[Worker] = []
        # blocks in the order of the file, and who has them
        self._waiting: deque[tuple[memoryview, Worker | Filed | None]] = deque()
        self._failures = 0
        try:
            for _ in range(workers):
                self._workers.append(Worker(folder, limits.name_length))
        except OSError:  # no more processes allowed: the parent reads alone
            self.close()

    def run(self) -> Iterator[int]:
        """Read everything; yield the number of events so far. Raises SourceError where the document cannot be read."""
        self._document.begin()
        while True:
            if self._failures < FAILURES:
                yield from self._blocks()
            events = self._document.step()
            if events is None:
                break
            self._filing.add(events)
            del events
            self._trace.merge(self._filing.take(), self._origin)
            yield self._trace.events
        self._trace.check()

    def _blocks(self) -> Iterator[int]:
        """Cut off blocks and have them filed, until one does not decode or the end is near."""
        while (block := self._document.block()) is not None:
            self._waiting.append((block, self._holder(block)))
            while self._waiting and (self._ready() or len(self._waiting) > WAITING * len(self._workers)):
                if not self._merge_next():
                    return
                yield self._trace.events
        while self._waiting:
            if not self._merge_next():
                return
            yield self._trace.events

    def _ready(self) -> bool:
        """Tell whether the oldest block is filed, so that taking it does not wait."""
        holder = self._waiting[0][1]
        return not isinstance(holder, Worker) or holder.ready()

    def _holder(self, block: memoryview) -> Worker | Filed | None:
        """Give ``block`` to a worker that has room for it, else file it here."""
        for worker in self._workers:
            if worker.free and len(block) + len(BRACKETS) <= SLOT_BYTES:
                with contextlib.suppress(OSError):
                    worker.send(block)
                    return worker
        events = strict(block)
        if events is None:
            return None
        self._filing.add(events)
        return self._filing.take()

    def _filed(self, holder: Worker | Filed | None) -> tuple[Filed | None, Origin]:
        if not isinstance(holder, Worker):
            return holder, self._origin
        try:
            return holder.result(), holder.origin
        except OSError:  # killed, or out of memory: go on without
            self._failures = FAILURES
            return None, holder.origin

    def _merge_next(self) -> bool:
        """Merge the oldest waiting block; where it does not decode, put it and all behind it back and say so."""
        filed, origin = self._filed(self._waiting[0][1])
        if filed is not None:
            self._waiting.popleft()
            self._trace.merge(filed, origin)
            return True
        for _, holder in list(self._waiting)[1:]:
            self._filed(holder)
        self._filing, self._origin = Filing(self._name_length), Origin()
        with contextlib.suppress(OSError):
            for worker in self._workers:
                worker.forget()
        self._document.put_back([block for block, _ in self._waiting])
        self._waiting.clear()
        self._failures += 1
        return False

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
