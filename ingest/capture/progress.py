"""How a running training goes, by its step marks: median and 95th percentile of the step and samples a second, said now and then.

As a line on stderr, as scalars for TensorBoard, into a file for the sampler beside it, or all of them. Read from the file of marks, so that the training itself does nothing for it.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from sawtooth.ingest.capture.marks import MARK
from sawtooth.ingest.capture.scalars import ScalarWriter

RECENT = 200  # steps that a figure is of, at most: long enough for a 95th percentile, short enough to show a change
LEAST = 5  # steps: of fewer nothing is said
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Pace:
    """The recent steps of a training up to ``step``: ms, and how many a second."""

    step: int
    p50_ms: float
    p95_ms: float
    per_s: float

    def line(self, samples: float | None) -> str:
        """Return it for a terminal; ``samples`` are in a step, where that is known."""
        rate = f"{samples * self.per_s:,.4g} samples/s" if samples else f"{self.per_s:.3g} steps/s"
        return f"sawtooth: step {self.step:,}: median {self.p50_ms:.4g} ms, 95th percentile {self.p95_ms:.4g} ms, {rate}"

    def scalars(self, samples: float | None) -> dict[str, float]:
        """Return it by tag."""
        known = {"step_ms_p50": self.p50_ms, "step_ms_p95": self.p95_ms, "steps_per_s": self.per_s}
        return {
            f"sawtooth/{tag}": value
            for tag, value in (known | ({"samples_per_s": samples * self.per_s} if samples else {})).items()
        }


def pace_of(marks: Iterable[tuple[int, int, str]]) -> Pace | None:
    """Return the pace of marks (step, end ns, phase) of one optimizer in order; None of fewer than LEAST training steps."""
    marks = list(marks)[-RECENT - 1 :]
    spans = [b[1] - a[1] for a, b in pairwise(marks) if b[0] == a[0] + 1 and a[2] == b[2] == "train"]
    if len(spans) < LEAST:
        return None
    ordered = sorted(spans)
    p50, p95 = (ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in (0.5, 0.95))
    return Pace(marks[-1][0], p50 / 1e6, p95 / 1e6, 1e9 * len(spans) / sum(spans))


class MarksTail:
    """Reads what was added to the files of marks in ``folder``, of the process that steps most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._at = 0
        self._torn = b""
        self._by_optimizer: dict[int, list[tuple[int, int, str]]] = {}

    def pace(self) -> Pace | None:
        """Return the pace now, None where no step came since the last time."""
        with contextlib.suppress(OSError):
            self._choose()
            if self._read():
                leading = min(self._by_optimizer.values(), key=lambda marks: marks[-1][0])
                return pace_of(leading)
        return None

    def _choose(self) -> None:
        every = sorted(self._folder.glob("marks-*.jsonl"), key=lambda path: path.stat().st_size)
        if (
            every
            and every[-1] != self._path
            and (self._path is None or every[-1].stat().st_size > 2 * self._path.stat().st_size)
        ):
            self._path, self._at, self._torn, self._by_optimizer = every[-1], 0, b"", {}

    def _read(self) -> bool:
        if self._path is None:
            return False
        before = self._at
        with self._path.open("rb") as file:
            file.seek(self._at)
            while piece := file.read(READ_BYTES):
                self._at += len(piece)
                *whole, self._torn = (self._torn + piece).split(b"\n")
                for mark in filter(None, map(MARK.search, whole)):
                    kept = self._by_optimizer.setdefault(int(mark[4]), [])
                    kept.append((int(mark[1]), int(mark[2]), mark[3].decode()))
                    del kept[: -RECENT - 1]
        return self._at > before and bool(self._by_optimizer)


class Progress:
    """Says every ``seconds`` how the training goes that writes marks into ``folder``, until it is left, to each of ``sinks``."""

    def __init__(self, folder: Path, *, seconds: float, sinks: Sequence[Callable[[Pace], None]]) -> None:
        self._tail, self._seconds, self._sinks = MarksTail(folder), seconds, tuple(sinks)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.report()  # the last steps

    def report(self) -> None:
        """Say how it goes now, where a step came since."""
        pace = self._tail.pace()
        if pace is None:
            return
        for sink in self._sinks:
            with contextlib.suppress(OSError):  # a full disk must not end anything
                sink(pace)

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self.report()


def lines(samples: float | None, say: Callable[[str], None] | None = None) -> Callable[[Pace], None]:
    """Return a sink that says a line, on stderr where nothing else is given."""
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    return lambda pace: say(pace.line(samples))


def scalars(writer: ScalarWriter, samples: float | None) -> Callable[[Pace], None]:
    """Return a sink that writes scalars for TensorBoard."""
    return lambda pace: writer.write(pace.step, pace.scalars(samples))


def noted(path: Path, samples: float | None, flops: float | None) -> Callable[[Pace], None]:
    """Return a sink that replaces ``path``, from which the sampler takes it into its session (``sawtooth.ingest.sampler.pace``)."""

    def note(pace: Pace) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(pace) | {"samples": samples, "flops": flops}))
        part.replace(path)

    return note
