"""A test bench for the sampler: a scripted driver, a clock that advances on waits, and a session."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from sawtooth.ingest.sampler.calls import HungError
from sawtooth.ingest.sampler.loop import Sampler
from sawtooth.ingest.sampler.nvml.driver import NvmlDriver
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.sinks import SessionSink
from tests.support.fake_nvml import FakeClock, FakeNvml


class Direct:
    """Runs calls on this thread; a scripted hang lasts until it is released."""

    def __init__(self) -> None:
        self.hung = False

    def call(self, work: Any) -> Any:
        if self.hung:
            raise HungError
        return work()

    def collect(self) -> Any:
        if self.hung:
            raise HungError

    def close(self) -> None: ...


class Memory:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.heads: list[list[dict[str, Any]]] = []

    def devices(self, gpus: list[dict[str, Any]], m: int, w: int) -> None:
        self.heads.append(json.loads(json.dumps(gpus)))

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def close(self) -> None: ...

    def ticks(self) -> list[dict[str, Any]]:
        return [r for r in self.records if r["k"] == "tick"]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r["k"] == "event" and r["e"] == name]


class Bench:
    def __init__(self, uuids: tuple[str, ...] = ("GPU-a", "GPU-b"), interval: float = 0.1, **options: Any) -> None:
        self.time = FakeClock()
        self.nvml = FakeNvml(self.time, uuids, **options)
        self.driver = NvmlDriver(self.nvml, self.time.clock())
        self.memory = Memory()
        self.caller = Direct()
        self.at: list[tuple[float, Any]] = []
        self.start_ns = self.time.m
        self.sampler = Sampler(
            self.driver,
            [self.memory],
            clock=self.time.clock(),
            stop=threading.Event(),
            interval_s=interval,
            caller=self.caller,
            alive=self._alive,
        )

    def _alive(self) -> bool:
        while self.at and self.time.m >= self.start_ns + self.at[0][0] * 1e9:
            self.at.pop(0)[1]()
        return True

    def run(self, seconds: float, *at: tuple[float, Any]) -> Memory:
        self.at = list(at)
        self.sampler.run(seconds)
        return self.memory

    def value(self, tick: dict[str, Any], column: str, device: int = 0) -> Any:
        return tick["g"][device][COLUMNS.index(column)]


def recorded(folder: Path, seconds: float = 5, *at: tuple[float, Any], bench: Bench | None = None) -> Path:
    bench = bench or Bench()
    sink = SessionSink(folder, 0.1, versions={"driver": "580.159.04"})
    bench.sampler.sinks = [sink]
    bench.at = list(at)
    bench.sampler.run(seconds)
    assert sink.folder is not None
    return sink.folder
