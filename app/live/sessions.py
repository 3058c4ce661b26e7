"""Readers of the sessions in the data folder's ``live/``, local and pushed ones, for the Live screen.

A server has one reader per session for all viewers. Each look reads the data that was appended since the last look.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth, find_sawtooth
from sawtooth.analysis.telemetry.signal.steady import find_steady
from sawtooth.analysis.telemetry.summary import ACTIVITY, SM_ACTIVITY
from sawtooth.app.live.diagnosis import LiveFinding, copy_samples, findings
from sawtooth.app.live.gpu import MAX_PROCESSES, LiveGpu
from sawtooth.app.live.step_rate import LiveStepRate
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import possible_value
from sawtooth.ingest.sampler.segments import find_segments
from sawtooth.ingest.telemetry.session import INVALID_RECORD_ERRORS, SessionClock, SessionReader, is_session_id, is_time

MAX_SESSIONS_IN_MEMORY = 16  # Sessions in memory. One with eight GPUs takes about 60 MB after hours.
SAWTOOTH_NS = 60 * 10**9  # The last minute is searched for a sawtooth: it is recent, and has about a hundred steps.
SAWTOOTH_EVERY_NS = 5 * 10**9  # Time between two searches: one takes 50 ms, and the period hardly changes faster.
FINDINGS_EVERY_NS = 5 * 10**9  # Time between two diagnoses: one of eight GPUs takes 0.1 s, and results are due within 30 s.
ALERT_STAYS_NS = 10 * 10**9  # Time for which an alert stays after its reason ended.
ALERT_NAME = 12  # First characters of an alert, such as "GPU 3 is thr", which identify its kind and contain no changing number.
SAWTOOTH_SAMPLES = 700  # Most samples that are searched: a minute at 10 Hz, or less time of a faster signal.
# Bytes that the first look at a long session reads, in a few seconds. Older samples are not drawn, and the page says so.
CATCH_UP_BYTES = 32 << 20
READ_BYTES_PER_CHECK = (
    4 << 20
)  # Bytes that each later look reads, once per second: 200 times what eight GPUs write in a second.
MAX_SAMPLES = 4_000_000  # Stored samples of one session, 64 MB: sixteen GPUs have 1.3 million in the last minutes.
MAX_EVENTS = 50  # Events that are stored, the newest ones.
MAX_GPUS = 64  # GPUs of one session. The largest hosts have 16.


class LiveSession:
    """A session while it grows: ``look`` reads new samples, all other methods use those in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus: dict[int, LiveGpu] = {}
        self.samples = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.step_rate: LiveStepRate | None = None
        self.events: list[dict[str, Any]] = []
        self.left_out_bytes = 0
        self.lock = threading.Lock()
        self._clock = SessionClock()
        self._columns: list[str] = []
        self._looked = False
        self._alerts: dict[tuple[int, str], tuple[int, str]] = {}
        self._findings: tuple[LiveFinding, ...] = ()
        self._diagnosed_ns = 0
        first, self.left_out_bytes = _first_segment(folder)
        self._reader = SessionReader(folder, first)
        meta = self._reader.meta
        self.interval_s = float(meta.get("interval_ns") or 0) / 1e9 or None
        self._head(meta)

    @property
    def ended(self) -> str | None:
        """Why the session ended; None while it continues, or if its sampler was killed."""
        return self._reader.ended

    def look(self) -> None:
        """Read the data that was appended since the last look."""
        with self.lock:
            for record in self._reader.poll(READ_BYTES_PER_CHECK if self._looked else CATCH_UP_BYTES):
                with contextlib.suppress(*INVALID_RECORD_ERRORS):  # An invalid record is ignored.
                    self._take(record)
            self._looked = True
            every = [series for gpu in self.gpus.values() for series in gpu.series.values()]
            if sum(map(len, every)) > MAX_SAMPLES:
                for series in every:
                    series.halve()

    def line(self, device: int, column: str, start_ns: int, points: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return times and values of a quantity to draw; see ``LiveSeries.line``."""
        with self.lock:
            return self.gpus[device].series[column].line(start_ns, points)

    def mean(self, device: int, column: str, seconds: float) -> float | None:
        """Return the mean of a quantity over the last ``seconds``; None without samples."""
        with self.lock:
            series = self.gpus[device].series.get(column)
            if series is None or self.last_ns is None:
                return None
            values = series.since(self.last_ns - int(seconds * 1e9))[1]
            return float(values.mean()) if len(values) else None

    def sawtooth(self, device: int) -> Sawtooth | None:
        """Return the sawtooth of the last minute; None if no quantity shows when the GPU works."""
        gpu = self.gpus[device]
        with self.lock:
            signal, last = gpu.signal, self.last_ns
            if signal is None or last is None:
                return None
            if gpu.sawtooth is not None and last - gpu.sawtooth_at_ns < SAWTOOTH_EVERY_NS:
                return gpu.sawtooth
            gpu.sawtooth_at_ns = last
            tried = [signal, ACTIVITY[-1]] if signal == SM_ACTIVITY and ACTIVITY[-1].column in gpu.series else [signal]
            stretches = [gpu.series[activity.column].since(last - SAWTOOTH_NS) for activity in tried]
        looked = [_sawtooth(t, v, activity.tiles) for (t, v), activity in zip(stretches, tried, strict=True)]
        best = next((i for i, tooth in enumerate(looked) if tooth.period_s is not None), 0)
        tooth, label = looked[best], tried[best].label
        with self.lock:
            gpu.sawtooth, gpu.sawtooth_quantity = tooth, label
        return tooth

    def alerts(self) -> list[str]:
        """Return one sentence for each alert: throttled clocks, memory nearly full, a lost GPU.

        An alert stays for some seconds after its reason ended, because it would blink if the reason comes and goes.
        """
        with self.lock:
            now = self.last_ns or 0
            for gpu in self.gpus.values():
                for sentence in gpu.alerts():
                    self._alerts[gpu.device, sentence[:ALERT_NAME]] = (now, sentence)
            self._alerts = {key: alert for key, alert in self._alerts.items() if now - alert[0] <= ALERT_STAYS_NS}
            return [sentence for _, sentence in self._alerts.values()]

    def findings(self) -> tuple[LiveFinding, ...]:
        """Return the findings of the samples so far, as for a finished recording; see ``diagnosis.findings``."""
        with self.lock:
            if self.last_ns is None or abs(self.last_ns - self._diagnosed_ns) < FINDINGS_EVERY_NS:
                return self._findings
            self._diagnosed_ns = self.last_ns
            samples = copy_samples(list(self.gpus.values()), self.last_ns)
        self._findings = findings(samples)
        return self._findings

    def _take(self, record: dict[str, Any]) -> None:
        m, w, kind = record.get("m"), record.get("w"), record.get("k")
        if not is_time(m) or not is_time(w):
            return
        now = self._clock.time_ns(m, w)
        if kind == "head":
            self._head(record)
        elif kind == "tick":
            self._tick(record, now, now - w)
        elif kind == "pace":
            self.step_rate = LiveStepRate.of(record, now)
        elif kind == "event":
            self._event(record, now)

    def _head(self, record: dict[str, Any]) -> None:
        self._columns = [str(c) for c in record.get("columns", self._columns)]
        for entry in record.get("devices", []):
            device = int(entry["device"])
            if len(self.gpus) >= MAX_GPUS and device not in self.gpus:
                continue
            gpu = self.gpus.setdefault(device, LiveGpu(device, str(entry.get("name") or "GPU"), None))
            gpu.memory_bytes = possible_value("mem_total_bytes", float(entry.get("memory_bytes") or 0)) or gpu.memory_bytes

    def _tick(self, record: dict[str, Any], now: int, shift: int) -> None:
        self.samples += 1
        self.first_ns = now if self.first_ns is None else self.first_ns
        self.last_ns = now
        finer = {(d, c) for d, c, _, _ in record.get("s", [])}
        for device, row in enumerate(record.get("g", [])):
            gpu = self.gpus.get(device)
            if gpu is None or row is None:
                continue
            values = {
                c: float(v) for c, v in zip(self._columns, row, strict=False) if v is not None and (device, c) not in finer
            }
            for column, value in gpu.measured(values).items():
                gpu.add(column, now, value)
        for device, column, times, values in record.get("s", []):
            if gpu := self.gpus.get(device):
                for t_us, value in zip(times, values, strict=False):
                    gpu.add(column, t_us * 1000 + shift, float(value))
        if "p" in record:
            self._processes(record["p"])

    def _processes(self, listed: list[Any]) -> None:
        """Store the processes of all GPUs: device, pid, memory bytes or null, name or null."""
        for gpu in self.gpus.values():
            processes = [
                (str(name or f"process {int(pid)}"), possible_value("mem_used_bytes", float(used or 0)))
                for d, pid, used, name in listed
                if d == gpu.device
            ]
            gpu.processes = sorted(processes, key=lambda process: -(process[1] or 0.0))[:MAX_PROCESSES]

    def _event(self, record: dict[str, Any], now: int) -> None:
        self.events = [*self.events, {"time_ns": now, **record}][-MAX_EVENTS:]
        gpu = self.gpus.get(record.get("device", -1))
        if gpu is not None and record.get("e") in ("gpu_lost", "gpu_back"):
            gpu.lost = record["e"] == "gpu_lost"


def _first_segment(folder: Path) -> tuple[int, int]:
    """Return the number of the first segment to read, and the bytes of the segments before it."""
    sizes = [(number, path.stat().st_size) for number, path in find_segments(folder).items()]
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


class LiveSessions:
    """The readers of this server's sessions: at most MAX_SESSIONS_IN_MEMORY, the most recently used ones."""

    def __init__(self, live: Path) -> None:
        self.live = live
        self._open: OrderedDict[str, LiveSession] = OrderedDict()
        self._lock = threading.Lock()

    def forget(self, session: str) -> None:
        """Close a session that was removed."""
        with self._lock:
            self._open.pop(session, None)

    def get(self, session: str) -> LiveSession | None:
        """Return a session after reading its new data; None if it does not exist."""
        if not is_session_id(session):
            return None
        with self._lock:
            opened = self._open.get(session)
            if opened is None:
                try:
                    opened = self._open[session] = LiveSession(self.live / session)
                except (SourceError, *INVALID_RECORD_ERRORS):
                    return None
            self._open.move_to_end(session)
            while len(self._open) > MAX_SESSIONS_IN_MEMORY:
                self._open.popitem(last=False)
        opened.look()
        return opened
