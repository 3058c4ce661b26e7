"""Sampler sessions in the data folder's ``live/``, of this machine and pushed ones, and what the Live screen says of them.

A server keeps one reader per session, whoever looks: each look reads what was appended since the last one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.sawtooth import Sawtooth, find_sawtooth
from sawtooth.analysis.telemetry.steady import find_steady
from sawtooth.analysis.telemetry.summary import ACTIVITY, FAINT, SHARES_AT_WORK
from sawtooth.app.live.folders import newest
from sawtooth.app.live.series import LiveSeries
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS, possible
from sawtooth.ingest.quantities.throttling import holding
from sawtooth.ingest.receiver import is_pushed
from sawtooth.ingest.seals import unsealed
from sawtooth.ingest.telemetry.session import ODD, SessionClock, SessionReader, is_session_id, is_time

FRESH_SECONDS = 10.0  # a sampler writes each tick and a push brings it within two seconds; longer is silence, not jitter
INFOS_KEPT = 4096  # twice the sessions that a receiver takes
READERS = 16  # sessions kept in memory; eight GPUs take about 60 MB each after hours
SAWTOOTH_NS = 60 * 10**9  # the stretch in which a sawtooth is looked for: a hundred steps, and what is true now
SAWTOOTH_EVERY_NS = 5 * 10**9  # a period of a minute's samples hardly changes faster, and the search takes 50 ms
SAWTOOTH_SAMPLES = 700  # of a minute at 10 Hz; faster signals are only looked at over a shorter stretch
CATCH_UP_BYTES = 32 << 20  # of a long session read at first look, some seconds; what is older is not drawn, and that is said
EVENTS_KEPT = 50
PROCESSES_KEPT = 16  # of a GPU; more than that is no training
GPUS_MOST = 64  # of one host; the largest have 16
MEMORY_NEAR = 0.95  # of the GPU's memory: the next larger batch or a fragmented allocator ends the run
CLOCK_HELD = 0.95  # of the fastest SM clock seen: smaller drops cost nobody anything, and idle GPUs report power caps too
BUSY_PCT = 20.0  # a GPU that does less lowers its clocks by itself


@dataclass(frozen=True)
class SessionInfo:
    """One session as its files tell: id, name, host, GPUs, when it began (its own wall clock), when it last grew (ours), how it ended."""

    id: str
    folder: Path
    name: str
    host: str
    gpus: int
    started_ns: int
    grown_s: float
    ended: bool
    pushed: bool
    replay_of: str | None
    pid: int | None

    def live(self, now_s: float) -> bool:
        """Tell whether samples still arrive."""
        return not self.ended and now_s - self.grown_s <= FRESH_SECONDS


def session_info(folder: Path) -> SessionInfo | None:
    """Return a session's facts, None where the folder holds none or its first bytes have not come yet."""
    try:
        about = (folder / "meta.json").stat()
        meta = _meta(folder / "meta.json", about.st_mtime_ns, about.st_size)
        if not is_time(meta.started_w):
            return None
        pushed = is_pushed(folder)
        segments = sorted(folder.glob("samples-[0-9]*.jsonl"))
        grown = max(path.stat().st_mtime for path in (folder / "meta.json", *segments[-1:]))
        ended = bool(segments) and _ends(segments[-1])
        return SessionInfo(
            id=folder.name, folder=folder, name=meta.name or "", host=meta.host or "", gpus=len(meta.devices), started_ns=meta.started_w, grown_s=grown, ended=ended,
            pushed=pushed, replay_of=meta.replay_of, pid=None if pushed else meta.pid,
        )  # fmt: skip
    except (OSError, RecursionError, *ODD):  # msgspec's errors are ValueErrors
        return None


class _Meta(msgspec.Struct, frozen=True):
    """What is shown of a session's meta.json; the rest may be anything and is passed over without being built."""

    devices: list[msgspec.Raw]
    started_w: int
    name: str | None = None
    host: str | None = None
    replay_of: str | None = None
    pid: int | None = None


@lru_cache(maxsize=INFOS_KEPT)
def _meta(path: Path, changed_ns: int, size: int) -> _Meta:
    """Return a meta.json, read once as long as it does not change: the Live page asks for all of them each second."""
    return msgspec.json.decode(unsealed(path.read_bytes()), type=_Meta)


def sessions(live: Path) -> list[SessionInfo]:
    """Return the newest sessions, those that live first."""
    infos = [session_info(folder) for folder in newest(live)]
    now = time.time()
    return sorted((s for s in infos if s is not None), key=lambda s: (s.live(now), s.grown_s), reverse=True)


def _ends(segment: Path) -> bool:
    with segment.open("rb") as file:
        file.seek(max(0, segment.stat().st_size - 400))
        return b'{"k":"end"' in file.read()


@dataclass
class LiveGpu:
    """One GPU of a session: what it is and its series by column."""

    device: int
    name: str
    memory_bytes: float | None
    series: dict[str, LiveSeries] = field(default_factory=dict)
    lost: bool = False
    processes: list[tuple[str, float | None]] = field(default_factory=list)  # name and memory, largest first
    sawtooth: Sawtooth | None = None
    sawtooth_at_ns: int = 0
    rhythm_in: str = "activity"  # the quantity that the sawtooth was looked for in

    def latest(self, column: str) -> float | None:
        """Return the newest value of a quantity."""
        series = self.series.get(column)
        return series.latest() if series else None

    @property
    def at_work(self) -> str | None:
        """Return the quantity that says how much of the time the GPU works."""
        return next((column for column in SHARES_AT_WORK if column in self.series), None)

    @property
    def signal(self) -> tuple[str, str, bool] | None:
        """Return the quantity that shows best when the GPU works: column, name, and whether its windows cover all time."""
        return next((activity for activity in ACTIVITY if activity[0] in self.series), None)


class LiveSession:
    """A session as it grows. ``look`` reads what is new; everything else answers from memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus: dict[int, LiveGpu] = {}
        self.samples = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.events: list[dict[str, Any]] = []
        self.left_out_bytes = 0
        self.lock = threading.Lock()
        self._clock = SessionClock()
        self._columns: list[str] = []
        first, self.left_out_bytes = _first_segment(folder)
        self._reader = SessionReader(folder, first)
        meta = self._reader.meta
        self.interval_s = float(meta.get("interval_ns") or 0) / 1e9 or None
        self._head(meta)

    @property
    def ended(self) -> str | None:
        """Why the session ended, None while it goes on or when its sampler was killed."""
        return self._reader.ended

    def look(self) -> None:
        """Read what was appended since the last look."""
        with self.lock:
            for record in self._reader.poll():
                with contextlib.suppress(*ODD):  # a record that no sampler of ours writes costs itself
                    self._take(record)

    def line(self, device: int, column: str, start_ns: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return times and values of a quantity to draw; see ``LiveSeries.line``."""
        with self.lock:
            return self.gpus[device].series[column].line(start_ns)

    def mean(self, device: int, column: str, seconds: float) -> float | None:
        """Return the mean of a quantity over the last ``seconds``, None where it has no sample in them."""
        with self.lock:
            series = self.gpus[device].series.get(column)
            if series is None or self.last_ns is None:
                return None
            values = series.since(self.last_ns - int(seconds * 1e9))[1]
            return float(values.mean()) if len(values) else None

    def sawtooth(self, device: int) -> Sawtooth | None:
        """Return the sawtooth of the last minute as it forms, None where nothing shows when the GPU works."""
        gpu = self.gpus[device]
        with self.lock:
            signal, last = gpu.signal, self.last_ns
            if signal is None or last is None:
                return None
            if gpu.sawtooth is not None and last - gpu.sawtooth_at_ns < SAWTOOTH_EVERY_NS:
                return gpu.sawtooth
            gpu.sawtooth_at_ns = last
            tried = [signal, ACTIVITY[-1]] if signal == FAINT and ACTIVITY[-1][0] in gpu.series else [signal]
            stretches = [gpu.series[column].since(last - SAWTOOTH_NS) for column, _, _ in tried]
        looked = [_sawtooth(t, v, tile) for (t, v), (_, _, tile) in zip(stretches, tried, strict=True)]
        best = next((i for i, tooth in enumerate(looked) if tooth.period_s is not None), 0)
        tooth, label = looked[best], tried[best][1]
        with self.lock:
            gpu.sawtooth, gpu.rhythm_in = tooth, label
        return tooth

    def alerts(self) -> list[str]:
        """Return what somebody should know now, a sentence each: clocks held down, memory near its end, a GPU that is gone."""
        with self.lock:
            return [sentence for gpu in self.gpus.values() for sentence in _alerts(gpu)]

    def _take(self, record: dict[str, Any]) -> None:
        m, w, kind = record.get("m"), record.get("w"), record.get("k")
        if not is_time(m) or not is_time(w):
            return
        now = self._clock.time_ns(m, w)
        if kind == "head":
            self._head(record)
        elif kind == "tick":
            self._tick(record, now, now - w)
        elif kind == "event":
            self._event(record, now)

    def _head(self, record: dict[str, Any]) -> None:
        self._columns = [str(c) for c in record.get("columns", self._columns)]
        for entry in record.get("devices", []):
            device = int(entry["device"])
            if len(self.gpus) >= GPUS_MOST and device not in self.gpus:
                continue
            gpu = self.gpus.setdefault(device, LiveGpu(device, str(entry.get("name") or "GPU"), None))
            gpu.memory_bytes = possible("mem_total_bytes", float(entry.get("memory_bytes") or 0)) or gpu.memory_bytes

    def _tick(self, record: dict[str, Any], now: int, shift: int) -> None:
        self.samples += 1
        self.first_ns = now if self.first_ns is None else self.first_ns
        self.last_ns = now
        finer = {(d, c) for d, c, _, _ in record.get("s", [])}
        for device, row in enumerate(record.get("g", [])):
            gpu = self.gpus.get(device)
            if gpu is None or row is None:
                continue
            for column, value in zip(self._columns, row, strict=False):
                if value is not None and (device, column) not in finer:
                    _add(gpu, column, now, float(value))
        for device, column, times, values in record.get("s", []):
            if gpu := self.gpus.get(device):
                for t_us, value in zip(times, values, strict=False):
                    _add(gpu, column, t_us * 1000 + shift, float(value))

        if "p" in record:
            self._processes(record["p"])

    def _processes(self, listed: list[Any]) -> None:
        """Take the processes of all GPUs: device, pid, memory bytes or null, name or null."""
        for gpu in self.gpus.values():
            own = [
                (str(name or f"process {int(pid)}"), possible("mem_used_bytes", float(held or 0)))
                for d, pid, held, name in listed
                if d == gpu.device
            ]
            gpu.processes = sorted(own, key=lambda one: -(one[1] or 0.0))[:PROCESSES_KEPT]

    def _event(self, record: dict[str, Any], now: int) -> None:
        self.events = [*self.events, {"time_ns": now, **record}][-EVENTS_KEPT:]
        gpu = self.gpus.get(record.get("device", -1))
        if gpu is not None and record.get("e") in ("gpu_lost", "gpu_back"):
            gpu.lost = record["e"] == "gpu_lost"


def _add(gpu: LiveGpu, column: str, time_ns: int, value: float) -> None:
    """Take a sample of a quantity that is sampled here, unless it is nothing a GPU reports: pushes come from anywhere."""
    if column in SAMPLE_COLUMNS and possible(column, value) is not None and is_time(time_ns):
        gpu.series.setdefault(column, LiveSeries()).add(time_ns, value)


def _first_segment(folder: Path) -> tuple[int, int]:
    """Return the first segment to read of a long session, and the bytes before it."""
    sizes = [(int(p.stem.split("-")[1]), p.stat().st_size) for p in sorted(folder.glob("samples-[0-9]*.jsonl"))]
    total, first = 0, 1
    for number, size in reversed(sizes):
        total += size
        if total > CATCH_UP_BYTES:
            return first, sum(s for n, s in sizes if n < first)
        first = number
    return first, 0


def _sawtooth(times: NDArray[np.int64], values: NDArray[np.float64], tile: bool) -> Sawtooth:
    times, values = times[-SAWTOOTH_SAMPLES:], values[-SAWTOOTH_SAMPLES:]
    steady = find_steady(times, values)
    if steady.why_none is not None:
        return Sawtooth(None, steady.why_none, None)
    keep = steady.mask(times)
    return find_sawtooth(times[keep], values[keep], windows_tile=tile)


def _alerts(gpu: LiveGpu) -> list[str]:
    alerts = []
    if gpu.lost:
        alerts.append(f"GPU {gpu.device} no longer answers: the driver has lost it.")
    used, total = gpu.latest("mem_used_bytes"), gpu.memory_bytes
    if used is not None and total and used > MEMORY_NEAR * total:
        alerts.append(
            f"GPU {gpu.device} has {used / total:.0%} of its memory in use: "
            f"{(total - used) / 1e9:.1f} of {total / 1e9:.0f} GB are left."
        )
    mask, clock, fastest = gpu.latest("clock_event_mask"), gpu.latest("clock_sm_mhz"), _fastest(gpu)
    busy = gpu.latest(gpu.at_work) if gpu.at_work else None
    words = [reason.label for reason in holding(int(mask or 0))]
    if words and clock is not None and fastest and clock < CLOCK_HELD * fastest and (busy is None or busy >= BUSY_PCT):
        alerts.append(
            f"GPU {gpu.device} is throttled by {' and '.join(words)}: its SM clock is {clock:.0f} MHz "
            f"and has been {fastest:.0f} MHz in this session."
        )
    return alerts


def _fastest(gpu: LiveGpu) -> float | None:
    series = gpu.series.get("clock_sm_mhz")
    return series.peak if series else None


class LiveSessions:
    """The sessions this server has looked at; the least recently used go first."""

    def __init__(self, live: Path) -> None:
        self.live = live
        self._open: OrderedDict[str, LiveSession] = OrderedDict()
        self._lock = threading.Lock()

    def forget(self, session: str) -> None:
        """Let go of a session that was removed."""
        with self._lock:
            self._open.pop(session, None)

    def get(self, session: str) -> LiveSession | None:
        """Return a session with everything that is on disk by now; None for one that is not here."""
        if not is_session_id(session):
            return None
        with self._lock:
            opened = self._open.get(session)
            if opened is None:
                try:
                    opened = self._open[session] = LiveSession(self.live / session)
                except (SourceError, *ODD):
                    return None
            self._open.move_to_end(session)
            while len(self._open) > READERS:
                self._open.popitem(last=False)
        opened.look()
        return opened
