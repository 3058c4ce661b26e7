"""The diagnosis of a running session: its last minutes, and slow changes of the whole session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, F64, I64, USED, DeviceSamples, hold_values
from sawtooth.analysis.telemetry.diagnosis.diagnose import SEVERITIES, diagnose
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration
from sawtooth.app.live.gpu import LiveGpu
from sawtooth.app.live.series import WINDOW_NS

# Kinds of findings about changes over hours. The last minutes do not show whether there is such a change.
SLOWLY_CHANGING_KINDS = ("utilization-trend", "memory-growth", "idle-stretch", "several-jobs")
MAX_ROWS = 8000  # Rows per GPU: five minutes at 25 Hz. If there are more, only every n-th row is used.


@dataclass(frozen=True)
class LiveFinding:
    """A finding about a running session, and the period that it is about (``over``, such as "last 5 min")."""

    observation: Observation
    over: str

    @property
    def sentence(self) -> str:
        """The finding's title with its period."""
        return f"{self.observation.title} ({self.over})."


class SampleCopies(NamedTuple):
    """Copies of each GPU's samples: the last minutes, and means over equal intervals of the session."""

    recent: list[DeviceSamples]
    whole: list[DeviceSamples]


def copy_samples(gpus: Sequence[LiveGpu], last_ns: int) -> SampleCopies:
    """Copy the samples for a diagnosis, so that the session can receive new ones meanwhile."""
    recent = [samples for gpu in gpus if (samples := _recent(gpu, last_ns)) is not None]
    return SampleCopies(recent, [samples for gpu in gpus if (samples := _session_means(gpu)) is not None])


def findings(samples: SampleCopies) -> tuple[LiveFinding, ...]:
    """Return the findings, the most severe first.

    Throttling, errors and other states come only from the last minutes, so that a state disappears soon after it ended.
    """
    recent, all_samples = samples
    longest = max((float(gpu.times[-1] - gpu.times[0]) for gpu in all_samples), default=0.0)
    slow = diagnose(all_samples) if longest > WINDOW_NS else ()
    of_recent = [diagnosis for diagnosis in diagnose(recent) if not slow or diagnosis.kind not in SLOWLY_CHANGING_KINDS]
    lately = max((float(gpu.times[-1] - gpu.times[0]) for gpu in recent), default=0.0)
    findings = [LiveFinding(diagnosis, f"last {duration(lately / 1e9)}") for diagnosis in of_recent]
    findings += [
        LiveFinding(diagnosis, f"last {duration(longest / 1e9)}")
        for diagnosis in slow
        if diagnosis.kind in SLOWLY_CHANGING_KINDS
    ]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.observation.severity)))


def _recent(gpu: LiveGpu, last_ns: int) -> DeviceSamples | None:
    """Return the last minutes at common times; each value is repeated until the next reading."""
    series = {column: gpu.series[column].since(last_ns - WINDOW_NS) for column in USED if column in gpu.series}
    series = {column: line for column, line in series.items() if len(line[0])}
    if not series:
        return None
    times = np.unique(np.concatenate([at for at, _ in series.values()]))
    times = times[:: -(-len(times) // MAX_ROWS)]
    return _device(gpu, times, {column: _values_at(times, *line) for column, line in series.items()})


def _values_at(times: I64, at: I64, values: F64) -> F64:
    """Return the values at ``times``; each reading is repeated until the next one.

    A reading is placed at the first of ``times`` that is not before it. ``hold_values`` limits how long it is repeated.
    """
    position = np.searchsorted(at, times, side="right") - 1
    before = np.concatenate([[-1], position[:-1]])
    fresh = (position >= 0) & (position > before)
    return hold_values(times, np.where(fresh, values[np.maximum(position, 0)], np.nan))


def _session_means(gpu: LiveGpu) -> DeviceSamples | None:
    """Return means over equal intervals of the whole session: utilization and memory in use."""
    column = next((name for name in BUSY if name in gpu.series), None)
    if column is None:
        return None
    times, busy = gpu.series[column].parts()
    values = {"util_pct": busy}
    if "mem_used_bytes" in gpu.series:
        at, used = gpu.series["mem_used_bytes"].parts()
        values["mem_used_bytes"] = np.interp(times, at, used)
    return _device(gpu, times, values)


def _device(gpu: LiveGpu, times: I64, values: dict[str, F64]) -> DeviceSamples:
    if gpu.memory_bytes and "mem_total_bytes" not in values:
        values["mem_total_bytes"] = np.full(len(times), gpu.memory_bytes)
    return DeviceSamples(gpu.device, gpu.name, times, values)
