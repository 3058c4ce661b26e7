"""Decode and sort blocks in worker processes, so that several cores read a large trace.

Each worker shares an unnamed temporary file with its parent. The parent writes a block into the file, and the worker replaces it by
the pickled columns. Only the sizes go through pipes. Results are used in file order, so ids do not depend on timing. A worker ends
when its parent ends, because its standard input closes.
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
from sawtooth.ingest.trace.torch_json.columns import BlockColumns, BlockSorter
from sawtooth.ingest.trace.torch_json.tables import IdMapping, TorchTrace
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.events import BRACKETS, decode_block, decode_in_place
from sawtooth.installation import IMPORT_ROOT

SLOT_BYTES = 6 << 20  # A slot has room for a block of 1 MB plus the longest event, and for their columns.
# Blocks in a worker's file. While one is processed, others wait, so the worker has work if the parent is busy.
BLOCKS_PER_WORKER = 4
# Blocks per worker that wait to be merged in file order. While a worker starts, the parent processes up to thirty.
MAX_WAITING = 40
MAX_WORKERS = 3  # More workers would wait for the parent, which decompresses, hashes and stores.
MIN_WORKER_BYTES = 3 << 20  # Size of the file. A smaller file is read before a worker has started.
MAX_FAILURES = 4  # After this many blocks that do not decode, the rest is read without workers.
# With these settings, freed memory stays in the process. Blocks are allocated and freed all the time, and requesting memory from the
# system for each block costs 8 %.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
RESET_SIZE = -2  # The parent sends this number instead of a size. The worker then starts its ids from 0.
# The slot, and the size of the block or of its result. The size is -1 for a block that does not decode.
HEADER = struct.Struct("<Iq")
START_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from sawtooth.ingest.trace.torch_json.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"


def worker_count(total_bytes: int) -> int:
    """Return the number of workers that are useful for a source of this size on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(cores - 1, MAX_WORKERS) if total_bytes >= MIN_WORKER_BYTES and os.name == "posix" else 0


def serve(descriptor: int, name_length: int) -> None:
    """Run a worker: process the blocks announced on standard input until it closes."""
    gc.disable()
    sorter = BlockSorter(name_length)
    with mmap.mmap(descriptor, BLOCKS_PER_WORKER * SLOT_BYTES) as shared:
        while header := sys.stdin.buffer.read(HEADER.size):
            slot, size = HEADER.unpack(header)
            if size == RESET_SIZE:
                sorter = BlockSorter(name_length)
                continue
            begin = slot * SLOT_BYTES
            events = decode_in_place(memoryview(shared)[begin : begin + size + len(BRACKETS)])
            result = b""
            if events is not None:
                sorter.add(events)
                del events
                result = pickle.dumps(sorter.take(), protocol=5)
            if result and len(result) <= SLOT_BYTES:
                shared[begin : begin + len(result)] = result
            else:
                result = b""
            sys.stdout.buffer.write(HEADER.pack(slot, len(result) or -1))
            sys.stdout.buffer.flush()


class DecodeProcess:
    """A worker process, as seen by its parent."""

    def __init__(self, folder: Path, name_length: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed by close)
        self._file.truncate(BLOCKS_PER_WORKER * SLOT_BYTES)
        if hasattr(os, "posix_fallocate"):
            # On a full disk, the first write to a page without reserved space would kill the process.
            os.posix_fallocate(self._file.fileno(), 0, BLOCKS_PER_WORKER * SLOT_BYTES)
        self._shared = mmap.mmap(self._file.fileno(), BLOCKS_PER_WORKER * SLOT_BYTES)
        root = str(IMPORT_ROOT)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START_CODE, root, str(self._file.fileno()), str(name_length)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, **KEEP_MEMORY},
            pass_fds=[self._file.fileno()],
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.id_mapping = IdMapping()
        self.free = deque(range(BLOCKS_PER_WORKER))

    def send(self, block: memoryview) -> None:
        """Send ``block`` to the worker, which must have a free slot.

        Raises OSError if the worker died.
        """
        slot = self.free[0]
        begin = slot * SLOT_BYTES + 1  # The worker puts one bracket before the block and one after it.
        self._shared[begin : begin + len(block)] = block
        self._in.write(HEADER.pack(slot, len(block)))
        self.free.popleft()

    def reset(self) -> None:
        """Tell the worker to start its ids from 0, because results were discarded.

        Raises OSError if the worker died.
        """
        self.id_mapping = IdMapping()
        self._in.write(HEADER.pack(0, RESET_SIZE))

    def has_result(self) -> bool:
        """Return whether ``result`` returns without waiting."""
        return bool(select.select([self._out], [], [], 0)[0])

    def result(self) -> BlockColumns | None:
        """Wait for the oldest block and return its columns; None if the block does not decode.

        Raises OSError if the worker died.
        """
        header = self._out.read(HEADER.size)
        if len(header) < HEADER.size:
            raise ChildProcessError("a worker ended early")
        slot, size = HEADER.unpack(header)
        self.free.append(slot)
        return None if size < 0 else pickle.loads(self._shared[slot * SLOT_BYTES : slot * SLOT_BYTES + size])

    def close(self) -> None:
        """End the process and free the shared memory."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):  # The pipe may have data that a dead worker never read.
            self._in.close()
        self._out.close()
        self._shared.close()
        self._file.close()


class ParallelReader:
    """Reading of a document into a trace, with workers if that is faster."""

    def __init__(self, document: Document, trace: TorchTrace, limits: Limits, folder: Path, workers: int) -> None:
        self._document, self._trace = document, trace
        self._name_length = limits.name_length
        self._sorter, self._id_mapping = BlockSorter(limits.name_length), IdMapping()
        self._workers: list[DecodeProcess] = []
        # Blocks in file order, each with the worker that has it, or with its result.
        self._waiting: deque[tuple[memoryview, DecodeProcess | BlockColumns | None]] = deque()
        self._failures = 0
        try:
            for _ in range(workers):
                self._workers.append(DecodeProcess(folder, limits.name_length))
        except OSError:  # The system allows no more processes, so the parent reads alone.
            self.close()

    def run(self) -> Iterator[int]:
        """Read everything; yield the number of events so far.

        Raises SourceError if the document cannot be read.
        """
        self._document.begin()
        while True:
            if self._failures < MAX_FAILURES:
                yield from self._blocks()
            events = self._document.next_events()
            if events is None:
                break
            self._sorter.add(events)
            del events
            self._trace.merge(self._sorter.take(), self._id_mapping)
            yield self._trace.events
        self._trace.check()

    def _blocks(self) -> Iterator[int]:
        """Cut blocks and process them in parallel, until one does not decode or only ``step`` can continue."""
        while (block := self._document.block()) is not None:
            self._waiting.append((block, self._worker_or_columns(block)))
            while self._waiting and (self._ready() or len(self._waiting) > MAX_WAITING * len(self._workers)):
                if not self._merge_next():
                    return
                yield self._trace.events
        while self._waiting:
            if not self._merge_next():
                return
            yield self._trace.events

    def _ready(self) -> bool:
        """Return whether the oldest block is processed, so that its result is available."""
        source = self._waiting[0][1]
        return not isinstance(source, DecodeProcess) or source.has_result()

    def _worker_or_columns(self, block: memoryview) -> DecodeProcess | BlockColumns | None:
        """Send ``block`` to a free worker and return the worker, or decode ``block`` and return the columns."""
        for worker in self._workers:
            if worker.free and len(block) + len(BRACKETS) <= SLOT_BYTES:
                with contextlib.suppress(OSError):
                    worker.send(block)
                    return worker
        events = decode_block(block)
        if events is None:
            return None
        self._sorter.add(events)
        return self._sorter.take()

    def _columns(self, source: DecodeProcess | BlockColumns | None) -> tuple[BlockColumns | None, IdMapping]:
        """Return a block's columns, from the worker if the block has one, and the mapping of their ids."""
        if not isinstance(source, DecodeProcess):
            return source, self._id_mapping
        try:
            return source.result(), source.id_mapping
        except OSError:  # The worker was killed, or had too little memory. Reading continues without workers.
            self._failures = MAX_FAILURES
            return None, source.id_mapping

    def _merge_next(self) -> bool:
        """Merge the oldest waiting block and return True.

        If this block does not decode, put all waiting blocks back and return False.
        """
        columns, id_mapping = self._columns(self._waiting[0][1])
        if columns is not None:
            self._waiting.popleft()
            self._trace.merge(columns, id_mapping)
            return True
        for _, source in list(self._waiting)[1:]:
            self._columns(source)  # The call frees the worker's slot.
        self._sorter, self._id_mapping = BlockSorter(self._name_length), IdMapping()
        with contextlib.suppress(OSError):
            for worker in self._workers:
                worker.reset()
        self._document.put_back([block for block, _ in self._waiting])
        self._waiting.clear()
        self._failures += 1
        return False

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
