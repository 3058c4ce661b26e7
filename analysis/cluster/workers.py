"""Worker processes on this machine; each reads one source at a time.

If a worker dies, its source is tried again in another worker. ``ProcessPoolExecutor`` is not used: if one worker is killed, all
its work fails, and if the driver is killed, its workers keep running. Here each worker has a pipe. It closes for the driver if the
worker dies, and for the worker if the driver dies.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from sawtooth.analysis.cluster.mapping import SourceOutcome, Task
from sawtooth.analysis.cluster.storage import SourceVersion

MAX_TRIES = 3  # A source that kills three workers would probably kill a fourth.
NICENESS = 5  # The training job's own processes get priority.
DIED = "{tries} processes died while they read this source, perhaps because memory ran out."


class _Worker:
    """A process, the driver's end of its pipe, and the source that it reads."""

    def __init__(self, task: Task, destination: str) -> None:
        context = multiprocessing.get_context("spawn")  # A fork of a process with DuckDB's threads would hang.
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, self.pipe, task, destination), daemon=True)
        self.process.start()
        theirs.close()
        self.source: SourceVersion | None = None

    def take(self, source: SourceVersion) -> None:
        """Start reading ``source``."""
        self.source = source
        with contextlib.suppress(OSError):  # If the process died in the meantime, ``result`` notices it.
            self.pipe.send(source)

    def result(self) -> SourceOutcome | None:
        """Return the outcome for the current source and mark this worker as free; None if it died."""
        self.source = None
        try:
            outcome: SourceOutcome = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return outcome

    def end(self) -> None:
        """End the process; if it is reading a source, terminate it."""
        self.pipe.close()
        if self.source is not None:
            self.process.terminate()
        self.process.join()


def in_processes(task: Task, sources: Sequence[SourceVersion], destination: str, workers: int) -> Generator[SourceOutcome]:
    """Run ``task`` on every source in up to ``workers`` processes; yield the outcomes as they arrive.

    ``destination`` is the address to which ``task`` writes its summaries. Close the generator to end the processes.
    """
    remaining = deque(sources)
    tries: Counter[str] = Counter()
    running: list[_Worker] = []
    try:
        while remaining or any(worker.source for worker in running):
            while remaining and len(running) < workers:
                running.append(_Worker(task, destination))
            for worker in running:
                if worker.source is None and remaining:
                    worker.take(remaining.popleft())
            reading = [(worker, worker.source) for worker in running if worker.source is not None]
            answered = wait([worker.pipe for worker, _ in reading])
            for worker, source in reading:
                if worker.pipe not in answered:
                    continue
                tries[source.url] += 1
                outcome = worker.result()
                if outcome is None:
                    running.remove(worker)
                    worker.end()
                    if tries[source.url] < MAX_TRIES:
                        remaining.append(source)
                        continue
                    outcome = SourceOutcome(source.url, failed=DIED.format(tries=MAX_TRIES))
                yield outcome
    finally:
        for worker in running:
            worker.end()


def _serve(pipe: Connection, drivers_end: Connection, task: Task, destination: str) -> None:
    """Process sources until the driver closes the pipe or dies."""
    drivers_end.close()  # Otherwise the pipe would stay open after the driver's death.
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    while True:
        try:
            source = pipe.recv()
        except (EOFError, OSError):
            return
        except KeyboardInterrupt:
            return
        outcome = task(source, destination)
        try:
            pipe.send(outcome)
        except OSError:
            return
