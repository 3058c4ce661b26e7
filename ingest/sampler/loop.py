"""Sampling loop: take samples at an interval, record gaps, survive hung calls, measure the own cost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sawtooth.ingest.sampler.calls import HUNG_S, CallThread, HungError
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.host import HostReader
from sawtooth.ingest.sampler.nvml.driver import DriverLostError, NvmlDriver, NvmlReading
from sawtooth.ingest.sampler.nvml.gpu import RETRY_FIRST_NS, RETRY_LONGEST_NS, SampledGpu
from sawtooth.ingest.sampler.step_rate import StepRateReader

OVERHEAD_PERIOD_NS = 10 * 10**9  # Time between records of the sampler's own cost.
PLAN_PERIOD_NS = 10**9  # Time between updates of the calls' periods.
MAX_CPU_SHARE = 0.01  # Share of one core, per GPU. If sampling takes more, all calls except GPM become less frequent.
MAX_SLOWDOWN = 8.0  # Largest factor by which calls become less frequent.
# Share of one core, per GPU. If sampling takes more even with MAX_SLOWDOWN, the interval doubles, which hides fast sawtooth patterns.
MAX_CPU_SHARE_AT_INTERVAL = 0.05
MAX_INTERVAL_NS = 10**9  # The interval never grows beyond one sample per second.


class RecordSink(Protocol):
    """Receiver of records in order.

    ``devices`` is called first, and again after the capabilities of the devices have changed.
    """

    def devices(self, gpus: list[dict[str, Any]], monotonic_ns: int, wall_ns: int) -> None:
        """Accept the descriptions of the devices; ``m`` and ``w`` are the times, as in records."""

    def write(self, record: dict[str, Any]) -> None:
        """Accept a record."""

    def close(self) -> None:
        """Accept the end of the records."""


@dataclass
class _Cost:
    """The sampler's cost since the monotonic time ``since_ns``, at which the CPU time was ``cpu_ns``."""

    since_ns: int
    cpu_ns: int
    nvml_ns: int = 0
    ticks: int = 0
    late: int = 0


class Sampler:
    """Takes samples until it is stopped, and writes them to every sink."""

    def __init__(
        self,
        driver: NvmlDriver,
        sinks: list[RecordSink],
        *,
        clock: SamplerClock,
        stop: threading.Event,
        interval_s: float = 0.1,
        caller: Any = None,
        alive: Callable[[], bool] = lambda: True,
        host: HostReader | None = None,
        step_rate: StepRateReader | None = None,
    ) -> None:
        self.driver = driver
        self.sinks = sinks
        self.clock = clock
        self.stop = stop
        self.interval_ns = int(interval_s * 1e9)
        self.caller = caller or CallThread(clock)
        self.alive = alive
        self.host = host
        self.step_rate = step_rate
        self._on_gpu: set[int] = set()
        self._cost = _Cost(0, 0)
        self._hung_since_ns: int | None = None
        self._beat_ns = 0
        self._plan_ns = 0
        self._slowdown = 1.0
        self._last_tick_ns: int | None = None
        self._lost: DriverLostError | None = None
        self._retry_at_ns = 0
        self._retry_ns = RETRY_FIRST_NS

    def run(self, seconds: float | None = None) -> str:
        """Sample until ``stop`` is set, the watched process ends or ``seconds`` have passed.

        Returns the reason for the end: "stopped", "watched process ended" or "time". Raises DriverLostError only at the start.
        """
        try:
            return self._run(seconds)
        finally:
            self.caller.close()

    def _run(self, seconds: float | None) -> str:
        gpus: list[SampledGpu] = self.driver.gpus or self.driver.open()
        start_ns = due = self.clock.monotonic_ns()
        self._announce(gpus)
        self._cost = _Cost(start_ns, self.clock.cpu_ns())
        reason = "stopped"
        while not self.stop.is_set():
            if not self.alive():
                reason = "watched process ended"
                break
            now = self.clock.monotonic_ns()
            if seconds is not None and now - start_ns >= seconds * 1e9:
                reason = "time"
                break
            if now >= due:
                due = self._next_due(due, now)
                self._tick(now)
                if self.step_rate is not None and (rate := self.step_rate.read(now)) is not None:
                    self._emit({"k": "pace", **rate})
                self._record_cost(self.clock.monotonic_ns())
            else:
                self.clock.wait(self.stop, (due - now) / 1e9)
        self._emit({"k": "end", "reason": reason})
        for sink in self.sinks:
            sink.close()
        self._close_driver()
        return reason

    def _close_driver(self) -> None:
        # A hung call has NVML's lock, so closing NVML would hang too. The end of the process closes NVML.
        if self._hung_since_ns is None:
            with contextlib.suppress(HungError, DriverLostError):
                self.caller.call(self.driver.close)

    def _next_due(self, due: int, now: int) -> int:
        missed = (now - due) // self.interval_ns
        if missed > 0:
            self._cost.late += missed
        if missed > 2 and self._last_tick_ns is not None and self._hung_since_ns is None and self._lost is None:
            # More than two missed samples are a telemetry gap. Charts must not draw a line across it.
            self._event({"e": "gap", "from_m": self._last_tick_ns, "to_m": now, "reason": "the sampler was not scheduled"})
        return due + (missed + 1) * self.interval_ns

    def _tick(self, now: int) -> None:
        if self._hung_since_ns is not None:
            self._still_hung(now)
            return
        if self._lost is not None:
            if now >= self._retry_at_ns:
                self._reopen(now)
            else:
                self._heartbeat(now, self._lost.code)
            return
        try:
            if any(gpu.lost for gpu in self.driver.gpus):
                events = self.caller.call(lambda: self.driver.retry_lost(now))
                if events:
                    self._announce(self.driver.gpus)
                for event in events:
                    self._event(event)
            self._record(now, self.caller.call(self.driver.read))
        except HungError:
            self._hung_since_ns = now
            self._event({"e": "hung", "reason": f"NVML has not answered for {HUNG_S:g} s"})
        except DriverLostError as error:
            self._driver_lost(now, error)

    def _still_hung(self, now: int) -> None:
        try:
            self.caller.collect()
        except HungError:
            self._heartbeat(now, None)
            return
        except DriverLostError as error:
            self._lost = error
        since, self._hung_since_ns = self._hung_since_ns, None
        self._event({"e": "gap", "from_m": since, "to_m": now, "reason": "NVML hung"})
        if self._lost is not None:
            self._driver_lost(now, self._lost)

    def _driver_lost(self, now: int, error: DriverLostError) -> None:
        if self._lost is None:
            self._retry_ns = RETRY_FIRST_NS
        self._lost, self._retry_at_ns = error, now + self._retry_ns
        self._event({"e": "driver_lost", "code": error.code, "reason": str(error)})

    def _reopen(self, now: int) -> None:
        try:
            gpus = self.caller.call(self.driver.reopen)
        except HungError:
            self._hung_since_ns = now
            return
        except DriverLostError as error:
            self._lost = error
            self._retry_ns = min(2 * self._retry_ns, RETRY_LONGEST_NS)
            self._retry_at_ns = now + self._retry_ns
            return
        self._lost = None
        self._announce(gpus)
        self._event({"e": "driver_back"})

    def _record(self, now: int, reading: NvmlReading) -> None:
        for event in reading.events:
            self._event(event)
        record: dict[str, Any] = {"k": "tick", "g": reading.rows}
        if reading.series:
            record["s"] = reading.series
        if reading.processes is not None:
            record["p"] = reading.processes
            self._on_gpu = {row[1] for row in reading.processes}
        if self.host is not None and (host_values := self.host.read(now, self._on_gpu)) is not None:
            record["h"] = host_values
        if reading.failures:
            record["n"] = reading.failures
        self._last_tick_ns = now
        self._cost.ticks += 1
        self._cost.nvml_ns += reading.nvml_ns
        if now - self._plan_ns >= PLAN_PERIOD_NS:
            self._plan_ns = now
            for gpu in self.driver.gpus:
                gpu.plan(self.interval_ns, self._slowdown)
        self._emit(record)

    def _record_cost(self, now: int) -> None:
        cost = self._cost
        if now - cost.since_ns < OVERHEAD_PERIOD_NS:
            return
        cpu_ns = self.clock.cpu_ns()
        share = (cpu_ns - cost.cpu_ns) / (now - cost.since_ns)
        per_tick = cost.nvml_ns / max(1, cost.ticks) / max(1, len(self.driver.gpus)) / 1e6
        costs = self.driver.gpus[0].costs() if self.driver.gpus else {}
        self._event(
            {
                "e": "overhead",
                "cpu_share": round(share, 5),
                "nvml_ms_per_gpu_tick": round(per_tick, 4),
                "late_ticks": cost.late,
                "costs": costs,
            }
        )
        share_per_gpu = share / max(1, len(self.driver.gpus))
        if share_per_gpu > MAX_CPU_SHARE and not self.driver.every_tick:
            if self._slowdown < MAX_SLOWDOWN:
                self._slowdown *= 2
                self._event(
                    {"e": "slowed", "stretch": self._slowdown, "reason": f"sampling took {100 * share:.1f} % of a core"}
                )
            elif share_per_gpu > MAX_CPU_SHARE_AT_INTERVAL and 2 * self.interval_ns <= MAX_INTERVAL_NS:
                self.interval_ns *= 2
                self._event(
                    {"e": "slowed", "interval_ns": self.interval_ns, "reason": f"sampling took {100 * share:.1f} % of a core"}
                )
        self._cost = _Cost(now, cpu_ns)

    def _heartbeat(self, now: int, code: int | None) -> None:
        if now - self._beat_ns >= 10**9:
            self._beat_ns = now
            self._event({"e": "heartbeat", "code": code})

    def _announce(self, gpus: list[SampledGpu]) -> None:
        monotonic_ns, wall_ns = self.clock.monotonic_ns(), self.clock.wall_ns()
        for sink in self.sinks:
            sink.devices([gpu.describe() for gpu in gpus], monotonic_ns, wall_ns)

    def _event(self, event: dict[str, Any]) -> None:
        self._emit({"k": "event", **event})

    def _emit(self, record: dict[str, Any]) -> None:
        stamped = {"k": record.pop("k"), "m": self.clock.monotonic_ns(), "w": self.clock.wall_ns(), **record}
        for sink in self.sinks:
            sink.write(stamped)
