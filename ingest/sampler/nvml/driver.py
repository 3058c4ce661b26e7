"""Reads GPUs through NVML, and recovers when a GPU or the driver is lost.

All calls go through the ``nvml`` object that the caller passes in: the module pynvml, or a fake in tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.fields import COLUMNS, GPM, Buffer, NvmlCall, Value, typed_value
from sawtooth.ingest.sampler.nvml.gpm import GpmReader
from sawtooth.ingest.sampler.nvml.gpu import RETRY_FIRST_NS, RETRY_LONGEST_NS, SampledGpu, ScheduledRead
from sawtooth.ingest.sampler.nvml.probe import (
    DRIVER_CODES,
    DRIVER_NOT_LOADED,
    GPU_NOT_FOUND,
    LIBRARY_DIFFERS,
    LIBRARY_NOT_FOUND,
    LOST_CODES,
    NO_DATA,
    NO_PERMISSION,
    NOT_FOUND,
    Probe,
    text,
)

PROCESS_PERIOD_NS = 10 * 10**9  # Reading process lists takes milliseconds and locks the driver, so it is done rarely.


class DriverLostError(Exception):
    """The driver does not answer. ``code`` is NVML's error code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass
class NvmlReading:
    """Readings of one tick: a row per device (None if lost), and lists of other records.

    ``series`` has the new samples of the driver's buffers. ``nvml_ns`` is the time that the NVML calls took.
    """

    rows: list[list[Value] | None]
    series: list[list[Any]] = field(default_factory=list)
    processes: list[list[Any]] | None = None
    failures: list[list[Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    nvml_ns: int = 0


class NvmlDriver:
    """GPUs of this machine. ``select`` lists them by index or UUID; None means all."""

    def __init__(
        self,
        nvml: Any,
        clock: SamplerClock,
        select: list[str] | None = None,
        *,
        processes: bool = True,
        buffers: bool = True,
        every_tick: bool = False,
    ) -> None:
        self.nvml = nvml
        self.clock = clock
        self.select = select
        self.gpus: list[SampledGpu] = []
        self.versions: dict[str, str | None] = {}
        self._with_processes = processes
        self.every_tick = every_tick  # Read everything at every tick, regardless of the cost.
        self._probe = Probe(nvml, clock, buffers=buffers, every_tick=every_tick)
        self._processes_due = 0
        self._open = False

    def open(self) -> list[SampledGpu]:
        """Initialize NVML, find the GPUs and probe their capabilities.

        Raises DriverLostError, with a message for users, if NVML does not start.
        """
        nvml = self.nvml
        try:
            nvml.nvmlInit()
            self._open = True
            self.versions = {"driver": text(nvml.nvmlSystemGetDriverVersion()), "nvml": text(nvml.nvmlSystemGetNVMLVersion())}
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise DriverLostError(error.value, _driver_message(error.value, str(error))) from None
        earlier_gpus = {gpu.uuid: gpu for gpu in self.gpus}
        gpus: list[SampledGpu] = []
        for index in range(count):
            try:
                gpus += self._probe.find(index)
            except nvml.NVMLError as error:
                if error.value in DRIVER_CODES:
                    raise DriverLostError(error.value, str(error)) from None
        if earlier_gpus:  # After a driver reload, devices keep their number by UUID, even if their index has changed.
            self._rejoin(earlier_gpus, {gpu.uuid: gpu for gpu in gpus})
        else:
            self.gpus = self._selected(gpus)
        return self.gpus

    def close(self) -> None:
        """Free GPM samples and shut NVML down; errors are ignored."""
        for gpu in self.gpus:
            gpu.free()
        if self._open:
            self._open = False
            try:
                self.nvml.nvmlShutdown()
            except self.nvml.NVMLError:
                return

    def reopen(self) -> list[SampledGpu]:
        """Shut NVML down and open it again, as needed after a driver reload."""
        self.close()
        return self.open()

    def read(self) -> NvmlReading:
        """Read every device once. Raises DriverLostError if the driver itself is lost."""
        started = self.clock.monotonic_ns()
        reading = NvmlReading(rows=[])
        for gpu in self.gpus:
            reading.rows.append(None if gpu.lost else self._read_gpu(gpu, started, reading))
        if self._with_processes and started >= self._processes_due:
            self._processes_due = started + PROCESS_PERIOD_NS
            reading.processes = self._processes()
        reading.nvml_ns = self.clock.monotonic_ns() - started
        return reading

    def retry_lost(self, now_ns: int) -> list[dict[str, Any]]:
        """Try to reopen the lost GPUs that are due; return ``gpu_back`` events.

        A GPU's wait for the next attempt doubles with each attempt.
        """
        due = [gpu for gpu in self.gpus if gpu.lost and now_ns >= gpu.retry_at_ns]
        if not due:
            return []
        for gpu in due:
            gpu.retry_ns = min(2 * gpu.retry_ns, RETRY_LONGEST_NS)
            gpu.retry_at_ns = now_ns + gpu.retry_ns
        self.reopen()
        return [{"e": "gpu_back", "device": gpu.device, "uuid": gpu.uuid} for gpu in due if not gpu.lost]

    def _selected(self, gpus: list[SampledGpu]) -> list[SampledGpu]:
        selected = gpus
        if self.select is not None:
            names = set(self.select)
            selected = [gpu for gpu in gpus if gpu.uuid in names or str(gpu.facts.get("index")) in names]
            if not selected:
                present = ", ".join(f"{gpu.facts.get('index')} ({gpu.uuid})" for gpu in gpus) or "none"
                raise DriverLostError(
                    GPU_NOT_FOUND, f"No GPU on this machine matches {', '.join(self.select)}. The GPUs are {present}."
                )
        for device, gpu in enumerate(selected):
            gpu.device = device
        return selected

    def _rejoin(self, earlier_gpus: dict[str, SampledGpu], present: dict[str, SampledGpu]) -> None:
        for uuid, gpu in earlier_gpus.items():
            new = present.get(uuid)
            gpu.lost = new is None
            if new is not None:
                new.device, new.retry_at_ns, new.retry_ns = gpu.device, gpu.retry_at_ns, gpu.retry_ns
                if not self._probe.alive(new):
                    new.lost = True
                self.gpus[gpu.device] = new

    def _read_gpu(self, gpu: SampledGpu, now_ns: int, reading: NvmlReading) -> list[Value] | None:
        values: dict[str, Value] = {}
        try:
            for scheduled in gpu.sources:
                if self.every_tick or now_ns >= scheduled.due_ns:
                    self._read_source(gpu, scheduled, now_ns, values, reading)
            for scheduled in gpu.buffers:
                if now_ns >= scheduled.due_ns:
                    self._read_buffer(gpu, scheduled, now_ns, reading)
            if gpu.gpm is not None:
                self._read_gpm(gpu, gpu.gpm, now_ns, values, reading)
        except self.nvml.NVMLError as error:
            if error.value in DRIVER_CODES:
                raise DriverLostError(error.value, str(error)) from None
            gpu.lost, gpu.retry_ns = True, RETRY_FIRST_NS
            gpu.retry_at_ns = now_ns + gpu.retry_ns
            reading.events.append(
                {"e": "gpu_lost", "device": gpu.device, "uuid": gpu.uuid, "code": error.value, "reason": str(error)}
            )
            return None
        return [values.get(column) for column in COLUMNS]

    def _read_source(
        self, gpu: SampledGpu, scheduled: ScheduledRead, now_ns: int, values: dict[str, Value], reading: NvmlReading
    ) -> None:
        source = scheduled.source
        assert isinstance(source, NvmlCall)
        started = self.clock.monotonic_ns()
        try:
            values.update(zip(source.columns, source.read(self.nvml, gpu.handle), strict=True))
        except self.nvml.NVMLError as error:
            self._note_failure(error, gpu, source.columns[0], reading)
        scheduled.record_cost(now_ns, self.clock.monotonic_ns() - started, gpu.period_factor)

    def _note_failure(self, error: Any, gpu: SampledGpu, column: str, reading: NvmlReading) -> None:
        if error.value in DRIVER_CODES or error.value in LOST_CODES:
            raise error
        reading.failures.append([gpu.device, column, error.value])

    def _read_buffer(self, gpu: SampledGpu, scheduled: ScheduledRead, now_ns: int, reading: NvmlReading) -> None:
        buffer = scheduled.source
        assert isinstance(buffer, Buffer)
        started = self.clock.monotonic_ns()
        try:
            kind, samples = self.nvml.nvmlDeviceGetSamples(gpu.handle, buffer.sampling_type, scheduled.last_us)
        except self.nvml.NVMLError as error:
            if error.value not in (NOT_FOUND, NO_DATA):  # These codes mean that the buffer has no new samples.
                self._note_failure(error, gpu, buffer.column, reading)
        else:
            first = scheduled.last_us == 0  # The first read also returns samples from before this session.
            new_samples = sorted(
                (sample for sample in samples if sample.timeStamp > scheduled.last_us), key=lambda sample: sample.timeStamp
            )
            if new_samples:
                scheduled.last_us = new_samples[-1].timeStamp
            if new_samples and not first:
                times = [sample.timeStamp for sample in new_samples]
                values = [round(typed_value(kind, sample.sampleValue) * buffer.scale, 3) for sample in new_samples]
                reading.series.append([gpu.device, buffer.column, times, values])
        scheduled.record_cost(now_ns, self.clock.monotonic_ns() - started, gpu.period_factor)

    def _read_gpm(self, gpu: SampledGpu, gpm: GpmReader, now_ns: int, values: dict[str, Value], reading: NvmlReading) -> None:
        try:
            readings, absent = gpm.read(now_ns)
        except self.nvml.NVMLError as error:
            self._note_failure(error, gpu, GPM[0].column, reading)
            return
        values.update(readings)
        for metric in absent:  # This GPU or driver does not have the metric, so it is not requested again.
            gpu.note((metric.column,), None, f"GPM metric {metric.metric_id} is not supported here")
            reading.events.append(
                {"e": "capability", "device": gpu.device, "column": metric.column, **gpu.capabilities[metric.column]}
            )

    def _processes(self) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for gpu in self.gpus:
            if gpu.lost:
                continue
            try:
                running = self.nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
            except (self.nvml.NVMLError, AttributeError):
                continue
            rows += [[gpu.device, p.pid, p.usedGpuMemory, _process_name(p.pid)] for p in running]
        return rows


def _process_name(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs more than the read
            return file.read(64).strip()
    except OSError:
        return None


def _driver_message(code: int, message: str) -> str:
    if code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        return (
            "This machine has no working NVIDIA driver. Sample on the machine with the GPUs and use --push URL, or read a log with "
            "sawtooth ingest."
        )
    if code == LIBRARY_DIFFERS:
        return "The NVIDIA driver was updated but not reloaded (library and kernel module differ). Reload it or restart the machine."
    if code == NO_PERMISSION:
        return "NVML refuses access to the GPUs. In a container, pass the GPUs in (for example with --gpus all)."
    return f"NVML does not start: {message} (code {code})."
