"""Reads GPUs through NVML: what each can tell, what it tells now, and what to do when one is lost.

Everything NVML is reached through the ``nvml`` object given (the module pynvml, or a fake in tests).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ingest.sampler.clock import Clock
from ingest.sampler.fields import BUFFERS, COLUMNS, GPM, SOURCES, Buffer, Source, Value, typed_value
from ingest.sampler.gpm import DEAR, TOO_DEAR, GpmReader

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 3, 4, 6
GPU_LOST, RESET_REQUIRED = 15, 16
DRIVER_CODES = frozenset(
    {UNINITIALIZED, 9, 12, 18}
)  # uninitialized, driver not loaded, library gone, library and driver differ
LOST_CODES = frozenset({GPU_LOST, RESET_REQUIRED, 28})  # 28: GPU not found
NVML_SHARE = 0.005  # of wall time all calls for one GPU may take: 0.5 ms in 100 ms
KEPT_SHARE = 0.3  # of that for everything but GPM, however slow GPM is
SLOW_SHARE = 0.0004  # of wall time one slow call may take, so that energy and the buffers leave room for the rest
JITTER_NS = 5_000_000  # a tick that comes a little early still counts as the one the period names
PROCESS_PERIOD_NS = 10 * 10**9  # process lists take milliseconds and the driver's lock
RETRY_FIRST_NS, RETRY_LONGEST_NS = 10**9, 60 * 10**9  # back-off between attempts to get a lost GPU or driver back


class DriverLostError(Exception):
    """The driver as a whole does not answer; ``code`` is NVML's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass
class _Active:
    """A source or buffer that answered when probed, with what it costs."""

    what: Source | Buffer
    due_m: int = 0
    cost_ns: float = 0.0
    last_us: int = 0

    def spent(self, now_m: int, cost_ns: int, stretch: float) -> None:
        """Plan the next call: the nominal period times ``stretch``, or longer where the call is slow."""
        self.cost_ns = cost_ns if self.cost_ns == 0 else 0.8 * self.cost_ns + 0.2 * cost_ns
        self.due_m = now_m + int(self.period_ns(stretch)) - JITTER_NS

    def period_ns(self, stretch: float) -> float:
        """Return the time between calls."""
        nominal = max(self.what.period_s * 1e9, self.cost_ns / SLOW_SHARE if self.what.period_s >= 1 else 0)
        return min(nominal * stretch, max(self.what.longest_period_s, self.what.period_s) * 1e9)


@dataclass
class Gpu:
    """One GPU or MIG instance and what it can tell. ``capabilities[column]`` has ``source`` or, where None, ``reason``."""

    device: int
    uuid: str
    name: str
    handle: Any
    facts: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, dict[str, str | None]] = field(default_factory=dict)
    sources: list[_Active] = field(default_factory=list)
    buffers: list[_Active] = field(default_factory=list)
    gpm: GpmReader | None = None
    stretch: float = 1.0  # of the periods of everything but GPM, to stay within NVML_SHARE
    parent: Any = None  # handle of the physical GPU, for a MIG instance
    instance: int | None = None  # its GPU instance id
    lost: bool = False
    retry_m: int = 0
    retry_ns: int = RETRY_FIRST_NS

    def plan(self, tick_ns: int, slower: float) -> None:
        """Choose the stretch from what calls have cost: GPM first, since it shows the teeth, the rest shares what is left."""
        gpm = self.gpm.cost_per_ns(tick_ns) if self.gpm is not None else 0.0
        rest = sum(a.cost_ns / a.period_ns(1.0) for a in (*self.sources, *self.buffers))
        self.stretch = slower * max(1.0, rest / max(NVML_SHARE - gpm, KEPT_SHARE * NVML_SHARE))

    def costs(self) -> dict[str, list[float]]:
        """Return per column the milliseconds of a call and the seconds between two."""
        found = {a.what.columns[0]: a for a in self.sources if isinstance(a.what, Source)}
        found |= {f"{a.what.column} buffer": a for a in self.buffers if isinstance(a.what, Buffer)}
        table = {name: [round(a.cost_ns / 1e6, 3), round(a.period_ns(self.stretch) / 1e9, 3)] for name, a in found.items()}
        return table | (self.gpm.costs() if self.gpm is not None else {})

    def describe(self) -> dict[str, Any]:
        """Return what meta.json and segment heads say about this device."""
        return {"device": self.device, "uuid": self.uuid, "name": self.name, **self.facts, "capabilities": self.capabilities}


@dataclass
class Reading:
    """One tick: a row per device (None where absent), buffers, processes, transient failures, events, NVML time."""

    rows: list[list[Value] | None]
    series: list[list[Any]] = field(default_factory=list)
    processes: list[list[Any]] | None = None
    failures: list[list[Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    nvml_ns: int = 0


class NvmlDriver:
    """The GPUs of this machine. ``select`` names them by index or UUID; None means all."""

    def __init__(
        self,
        nvml: Any,
        clock: Clock,
        select: list[str] | None = None,
        *,
        processes: bool = True,
        buffers: bool = True,
        every_tick: bool = False,
    ) -> None:
        self.nvml = nvml
        self.clock = clock
        self.select = select
        self.gpus: list[Gpu] = []
        self.versions: dict[str, str | None] = {}
        self._with_processes = processes
        self._with_buffers = buffers
        self.every_tick = every_tick  # read everything at every tick, whatever it costs
        self._processes_due = 0
        self._open = False

    def open(self) -> list[Gpu]:
        """Initialize NVML, find the GPUs and probe what each can tell. Raises DriverLostError with a sentence for people."""
        nvml = self.nvml
        try:
            nvml.nvmlInit()
            self._open = True
            self.versions = {"driver": _text(nvml.nvmlSystemGetDriverVersion()), "nvml": _text(nvml.nvmlSystemGetNVMLVersion())}
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise DriverLostError(error.value, _no_driver(error.value, str(error))) from None
        known = {gpu.uuid: gpu for gpu in self.gpus}
        found: list[Gpu] = []
        for index in range(count):
            try:
                found += self._find(index)
            except nvml.NVMLError as error:
                if error.value in DRIVER_CODES:
                    raise DriverLostError(error.value, str(error)) from None
        if known:  # after a reload: devices keep their place by UUID, whatever their index has become
            self._rejoin(known, {gpu.uuid: gpu for gpu in found})
        else:
            self.gpus = self._selected(found)
        return self.gpus

    def close(self) -> None:
        """Free GPM samples and shut NVML down; failures are of no interest any more."""
        for gpu in self.gpus:
            self._free(gpu)
        if self._open:
            self._open = False
            try:
                self.nvml.nvmlShutdown()
            except self.nvml.NVMLError:
                return

    def reopen(self) -> list[Gpu]:
        """Shut down and open again, as after a driver reload."""
        self.close()
        return self.open()

    def read(self) -> Reading:
        """Read every device once. Raises DriverLostError when the whole driver is gone."""
        started = self.clock.monotonic_ns()
        reading = Reading(rows=[])
        for gpu in self.gpus:
            reading.rows.append(None if gpu.lost else self._read_gpu(gpu, started, reading))
        if self._with_processes and started >= self._processes_due:
            self._processes_due = started + PROCESS_PERIOD_NS
            reading.processes = self._processes()
        reading.nvml_ns = self.clock.monotonic_ns() - started
        return reading

    def retry_lost(self, now_m: int) -> list[dict[str, Any]]:
        """Try to get lost GPUs back, each with its own back-off. Returns ``gpu_back`` events."""
        due = [gpu for gpu in self.gpus if gpu.lost and now_m >= gpu.retry_m]
        if not due:
            return []
        for gpu in due:
            gpu.retry_ns = min(2 * gpu.retry_ns, RETRY_LONGEST_NS)
            gpu.retry_m = now_m + gpu.retry_ns
        self.reopen()
        return [{"e": "gpu_back", "device": gpu.device, "uuid": gpu.uuid} for gpu in due if not gpu.lost]

    def _find(self, index: int) -> list[Gpu]:
        nvml = self.nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu = Gpu(
            0, _text(nvml.nvmlDeviceGetUUID(handle)) or f"index-{index}", _text(nvml.nvmlDeviceGetName(handle)) or "", handle
        )
        gpu.facts = self._facts(handle) | {"index": index}
        self._probe(gpu)
        return [gpu, *self._instances(gpu)]

    def _facts(self, handle: Any) -> dict[str, Any]:
        nvml = self.nvml
        calls = {
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).total),
            "compute_capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
            "pci_bus": lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            "max_clock_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, 1),
        }
        facts: dict[str, Any] = {}
        for key, call in calls.items():
            try:
                facts[key] = call()
            except (nvml.NVMLError, AttributeError):
                facts[key] = None
        return facts

    def _instances(self, gpu: Gpu) -> list[Gpu]:
        nvml = self.nvml
        found = []
        try:
            if nvml.nvmlDeviceGetMigMode(gpu.handle)[0] != 1:
                return []
            slots = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except (nvml.NVMLError, AttributeError):
            return []
        for slot in range(slots):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, slot)
                instance = Gpu(
                    0, _text(nvml.nvmlDeviceGetUUID(handle)) or "", _text(nvml.nvmlDeviceGetName(handle)) or "", handle
                )
                instance.parent, instance.instance = gpu.handle, nvml.nvmlDeviceGetGpuInstanceId(handle)
            except nvml.NVMLError:
                continue  # an empty slot
            instance.facts = {"parent_uuid": gpu.uuid, "gpu_instance": instance.instance, "index": gpu.facts["index"]}
            self._probe(instance)
            found.append(instance)
        return found

    def _selected(self, found: list[Gpu]) -> list[Gpu]:
        chosen = found
        if self.select is not None:
            wanted = set(self.select)
            chosen = [g for g in found if g.uuid in wanted or str(g.facts.get("index")) in wanted]
            if not chosen:
                have = ", ".join(f"{g.facts.get('index')} ({g.uuid})" for g in found) or "none"
                raise DriverLostError(28, f"No GPU here is called {', '.join(self.select)}. This machine has: {have}.")
        for device, gpu in enumerate(chosen):
            gpu.device = device
        return chosen

    def _rejoin(self, known: dict[str, Gpu], found: dict[str, Gpu]) -> None:
        for uuid, gpu in known.items():
            new = found.get(uuid)
            gpu.lost = new is None
            if new is not None:
                new.device, new.retry_m, new.retry_ns = gpu.device, gpu.retry_m, gpu.retry_ns
                if not self._alive(new):
                    new.lost = True
                self.gpus[gpu.device] = new

    def _alive(self, gpu: Gpu) -> bool:
        try:
            self.nvml.nvmlDeviceGetMemoryInfo(gpu.handle, self.nvml.nvmlMemory_v2)
        except self.nvml.NVMLError as error:
            return error.value not in LOST_CODES
        return True

    def _probe(self, gpu: Gpu) -> None:
        gpu.capabilities = {column: {"source": None, "reason": "not offered by this driver"} for column in COLUMNS}
        for source in SOURCES:
            if gpu.capabilities[source.columns[0]]["source"] is not None:
                continue  # an earlier source of the same column answered
            if gpu.instance is not None and not source.on_mig:
                reason: str | None = "NVML does not report it for a MIG instance; see the parent GPU"
            else:
                reason = self._reason(source.read, gpu.handle)
            self._note(gpu, source.columns, None if reason else source.call, reason)
            if reason is None:
                gpu.sources.append(_Active(source))
        for buffer in BUFFERS if self._with_buffers and gpu.instance is None else ():
            if (
                self._reason(lambda _, handle, b=buffer: self.nvml.nvmlDeviceGetSamples(handle, b.sampling_type, 0), gpu.handle)
                is None
            ):
                gpu.buffers.append(_Active(buffer))
                gpu.capabilities[buffer.column]["buffer"] = "nvmlDeviceGetSamples"
        self._probe_gpm(gpu)

    def _reason(self, read: Any, handle: Any) -> str | None:
        try:
            read(self.nvml, handle)
        except self.nvml.NVMLError as error:
            if error.value in DRIVER_CODES or error.value in LOST_CODES:
                raise
            if error.value == 21:  # no data yet: the call itself is there
                return None
            return f"NVML code {error.value}: {error}"
        except AttributeError:
            return "these NVML bindings do not have the call"
        return None

    def _note(self, gpu: Gpu, columns: tuple[str, ...], source: str | None, reason: str | None) -> None:
        for column in columns:
            gpu.capabilities[column] = {"source": source, "reason": reason}

    def _probe_gpm(self, gpu: Gpu) -> None:
        nvml = self.nvml
        columns = tuple(metric.column for metric in GPM)
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(gpu.parent or gpu.handle).isSupportedDevice:
                self._note(gpu, columns, None, "GPM needs a GPU of the Hopper generation or newer")
                return
            gpu.gpm = GpmReader(nvml, self.clock, gpu.parent or gpu.handle, gpu.instance, self.every_tick)
            gpu.gpm.open()
        except (nvml.NVMLError, AttributeError) as error:
            self._note(gpu, columns, None, f"GPM: {error}")
            self._free(gpu)
            return
        self._note(gpu, columns, "GPM", None)
        if not self.every_tick:
            self._note(gpu, (DEAR,), None, TOO_DEAR)

    def _free(self, gpu: Gpu) -> None:
        if gpu.gpm is not None:
            gpu.gpm.close()
            gpu.gpm = None

    def _read_gpu(self, gpu: Gpu, now_m: int, reading: Reading) -> list[Value] | None:
        values: dict[str, Value] = {}
        try:
            for active in gpu.sources:
                if self.every_tick or now_m >= active.due_m:
                    self._poll(gpu, active, now_m, values, reading)
            for active in gpu.buffers:
                if now_m >= active.due_m:
                    self._drain(gpu, active, now_m, reading)
            if gpu.gpm is not None:
                self._read_gpm(gpu, gpu.gpm, now_m, values, reading)
        except self.nvml.NVMLError as error:
            if error.value in DRIVER_CODES:
                raise DriverLostError(error.value, str(error)) from None
            gpu.lost, gpu.retry_ns = True, RETRY_FIRST_NS
            gpu.retry_m = now_m + gpu.retry_ns
            reading.events.append(
                {"e": "gpu_lost", "device": gpu.device, "uuid": gpu.uuid, "code": error.value, "reason": str(error)}
            )
            return None
        return [values.get(column) for column in COLUMNS]

    def _poll(self, gpu: Gpu, active: _Active, now_m: int, values: dict[str, Value], reading: Reading) -> None:
        source = active.what
        assert isinstance(source, Source)
        started = self.clock.monotonic_ns()
        try:
            values.update(zip(source.columns, source.read(self.nvml, gpu.handle), strict=True))
        except self.nvml.NVMLError as error:
            self._transient(error, gpu, source.columns[0], reading)
        active.spent(now_m, self.clock.monotonic_ns() - started, gpu.stretch)

    def _transient(self, error: Any, gpu: Gpu, column: str, reading: Reading) -> None:
        if error.value in DRIVER_CODES or error.value in LOST_CODES:
            raise error
        reading.failures.append([gpu.device, column, error.value])

    def _drain(self, gpu: Gpu, active: _Active, now_m: int, reading: Reading) -> None:
        buffer = active.what
        assert isinstance(buffer, Buffer)
        started = self.clock.monotonic_ns()
        try:
            kind, samples = self.nvml.nvmlDeviceGetSamples(gpu.handle, buffer.sampling_type, active.last_us)
        except self.nvml.NVMLError as error:
            if error.value not in (NOT_FOUND, 21):  # nothing new since last time
                self._transient(error, gpu, buffer.column, reading)
        else:
            first = active.last_us == 0  # the ring also holds what happened before this session
            fresh = [s for s in samples if s.timeStamp > active.last_us]
            if fresh:
                active.last_us = max(s.timeStamp for s in fresh)
            if fresh and not first:
                fresh.sort(key=lambda s: s.timeStamp)
                values = [round(typed_value(kind, s.sampleValue) * buffer.scale, 3) for s in fresh]
                reading.series.append([gpu.device, buffer.column, [s.timeStamp for s in fresh], values])
        active.spent(now_m, self.clock.monotonic_ns() - started, gpu.stretch)

    def _read_gpm(self, gpu: Gpu, gpm: GpmReader, now_m: int, values: dict[str, Value], reading: Reading) -> None:
        try:
            found, absent = gpm.read(now_m)
        except self.nvml.NVMLError as error:
            self._transient(error, gpu, GPM[0].column, reading)
            return
        values.update(found)
        for metric in absent:  # asked once: this GPU or driver does not have it
            self._note(gpu, (metric.column,), None, f"GPM metric {metric.metric_id} is not supported here")
            reading.events.append(
                {"e": "capability", "device": gpu.device, "column": metric.column, **gpu.capabilities[metric.column]}
            )

    def _processes(self) -> list[list[Any]]:
        found: list[list[Any]] = []
        for gpu in self.gpus:
            if gpu.lost:
                continue
            try:
                running = self.nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
            except (self.nvml.NVMLError, AttributeError):
                continue
            found += [[gpu.device, p.pid, p.usedGpuMemory, _process_name(p.pid)] for p in running]
        return found


def _process_name(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib costs more than the read
            return file.read(64).strip()
    except OSError:
        return None


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _no_driver(code: int, text: str) -> str:
    if code in (9, 12):
        return (
            "This machine has no working NVIDIA driver, so there is nothing to sample. Sample on the machine with the GPUs "
            "and use --push URL, or bring a log in with `sawtooth ingest`."
        )
    if code == 18:
        return "The NVIDIA driver was updated but not reloaded (library and kernel module differ). Reload it or restart the machine."
    if code == NO_PERMISSION:
        return "NVML refuses access to the GPUs. In a container, pass the GPUs in (for example `--gpus all`)."
    return f"NVML does not start: {text} (code {code})."
