"""Progress of a running training from its step marks: step time percentiles and samples per second.

The progress is printed to stderr, written as scalars for TensorBoard, and written into a file for the sampler. It is computed from the
file of marks, so that the training itself does no extra work. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from sawtooth.ingest.capture.command.scalars import ScalarWriter
from sawtooth.ingest.capture.marks import MARK
from sawtooth.ingest.loop.leading_optimizer import LeadingOptimizer
from sawtooth.ingest.loop.numbers import in_words, significant

MAX_REPORTED_STEPS = 200  # Enough steps for a 95th percentile, and few enough to show a change.
MIN_REPORTED_STEPS = 5  # With fewer steps, one slow step would decide the median.
READ_BYTES = 1 << 20  # Size of the pieces in which the marks are read.


@dataclass(frozen=True)
class StepRate:
    """Percentiles of the step time, and steps per second, over the recent steps up to ``step``."""

    step: int
    p50_ms: float
    p95_ms: float
    per_s: float

    def line(self, samples: float | None) -> str:
        """Return a line for a terminal; ``samples`` is the number of samples per step, if it is known."""
        rate = f"{significant(samples * self.per_s, 4)} samples/s" if samples else f"{significant(self.per_s)} steps/s"
        return f"sawtooth: step {self.step:,}: median {in_words(self.p50_ms, 4)}, 95th percentile {in_words(self.p95_ms, 4)}, {rate}"

    def scalars(self, samples: float | None) -> dict[str, float]:
        """Return the values by TensorBoard tag."""
        values = {"step_ms_p50": self.p50_ms, "step_ms_p95": self.p95_ms, "steps_per_s": self.per_s}
        if samples:
            values["samples_per_s"] = samples * self.per_s
        return {f"sawtooth/{tag}": value for tag, value in values.items()}


def step_rate_from(marks: Iterable[tuple[int, int, str]]) -> StepRate | None:
    """Return the step rate from the ordered marks (step, end ns, phase) of one optimizer.

    The result is None if the marks have fewer than MIN_REPORTED_STEPS training steps.
    """
    marks = list(marks)[-MAX_REPORTED_STEPS - 1 :]
    durations_ns = []
    for (previous_step, start_ns, previous_phase), (step, end_ns, phase) in pairwise(marks):
        if step == previous_step + 1 and previous_phase == phase == "train":
            durations_ns.append(end_ns - start_ns)
    if len(durations_ns) < MIN_REPORTED_STEPS:
        return None
    ordered = sorted(durations_ns)
    p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return StepRate(marks[-1][0], p50 / 1e6, p95 / 1e6, 1e9 * len(ordered) / sum(ordered))


class MarksTail:
    """Reader of new marks in ``folder``, from the largest file, which has the most steps.

    The last ``max_marks`` marks of each optimizer are stored, or all marks if ``max_marks`` is None.
    """

    def __init__(self, folder: Path, max_marks: int | None = MAX_REPORTED_STEPS + 1) -> None:
        self._folder, self._max_marks = folder, max_marks
        self._path: Path | None = None
        self._offset = 0  # The number of bytes that were read.
        self._partial_line = b""
        self._loop = LeadingOptimizer()
        self._by_optimizer: dict[int, list[tuple[int, int, str]]] = {}

    def marks(self) -> Sequence[tuple[int, int, str]]:
        """Return the marks of the optimizer that leads the loop, in order: step, end (ns) and phase."""
        with contextlib.suppress(OSError):
            self._choose_file()
            self._read_marks()
        return self._by_optimizer[self._loop.number] if self._by_optimizer else ()

    def step_rate(self) -> StepRate | None:
        """Return the current step rate; None if no step was added since the last call."""
        with contextlib.suppress(OSError):
            self._choose_file()
            if self._read_marks():
                return step_rate_from(self._by_optimizer[self._loop.number])
        return None

    def _choose_file(self) -> None:
        sizes: dict[Path | None, int] = {}
        for path in self._folder.glob("marks-*.jsonl"):
            with contextlib.suppress(OSError):  # Marks of another step boundary are removed when an optimizer steps.
                sizes[path] = path.stat().st_size
        largest = max(sizes, key=lambda path: sizes[path], default=None)
        if largest is not None and largest != self._path and sizes[largest] > 2 * sizes.get(self._path, 0):
            self._path, self._offset, self._partial_line = largest, 0, b""
            self._loop, self._by_optimizer = LeadingOptimizer(), {}

    def _read_marks(self) -> bool:
        """Read what was added to the file; return whether something was added and the file has marks."""
        if self._path is None:
            return False
        offset_before = self._offset
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while piece := file.read(READ_BYTES):
                self._offset += len(piece)
                *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
                for mark in filter(None, map(MARK.search, lines)):
                    optimizer = int(mark[4])
                    self._loop.note_step(optimizer)
                    marks = self._by_optimizer.setdefault(optimizer, [])
                    marks.append((int(mark[1]), int(mark[2]), mark[3].decode()))
                    if self._max_marks is not None:
                        del marks[: -self._max_marks]
        return self._offset > offset_before and bool(self._by_optimizer)


@dataclass(frozen=True)
class ProgressSink:
    """A receiver of step rates: ``show`` is called every ``seconds`` seconds if there are new steps."""

    seconds: float
    show: Callable[[StepRate], None]


class ProgressReporter:
    """Reporter of a training's progress to all ``sinks``. The training writes its marks into ``folder``.

    Each sink has its own interval. Every sink gets a last report on exit.
    """

    def __init__(self, folder: Path, sinks: Sequence[ProgressSink], clock: Callable[[], float] = time.monotonic) -> None:
        self._tail, self._sinks, self._clock = MarksTail(folder), tuple(sinks), clock
        self._due_s = [clock() + sink.seconds for sink in self._sinks]
        self._pending: list[StepRate | None] = [None] * len(self._sinks)  # For each sink, the step rate to show next.
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # The training's exit code must still be returned.
            self.report(math.inf)  # At this time, all sinks are due for the last steps.

    def report(self, now_s: float) -> None:
        """Report new steps to the sinks that are due at ``now_s`` of the clock."""
        if (step_rate := self._tail.step_rate()) is not None:
            self._pending = [step_rate] * len(self._sinks)
        for index, sink in enumerate(self._sinks):
            if now_s < self._due_s[index]:
                continue
            self._due_s[index] = now_s + sink.seconds
            pending, self._pending[index] = self._pending[index], None
            if pending is not None:
                with contextlib.suppress(OSError):  # A full disk must not end the other sinks.
                    sink.show(pending)

    def _run(self) -> None:
        while not self._over.wait(max(min(self._due_s) - self._clock(), 0.0)):
            self.report(self._clock())


def on_stderr(samples: float | None, seconds: float) -> ProgressSink:
    """Return a sink that prints a line."""
    return ProgressSink(seconds, lambda step_rate: print(step_rate.line(samples), file=sys.stderr, flush=True))


def to_tensorboard(writer: ScalarWriter, samples: float | None, seconds: float) -> ProgressSink:
    """Return a sink that writes scalars for TensorBoard."""
    return ProgressSink(seconds, lambda step_rate: writer.write(step_rate.step, step_rate.scalars(samples)))


def to_sampler(path: Path, samples: float | None, flops: float | None, seconds: float) -> ProgressSink:
    """Return a sink that writes the step rate into ``path``, which the sampler reads."""

    def replace(step_rate: StepRate) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(step_rate) | {"samples": samples, "flops": flops}))
        part.replace(path)

    return ProgressSink(seconds, replace)
