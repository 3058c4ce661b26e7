"""Conversion of a run's telemetry times to its traces' clock.

The sources are tried in this order: an offset from the user (``RecordingRef.offset_ns``); the same host, which has one clock; the
difference that a dashboard measured while the telemetry was pushed to it. Otherwise absolute times are used unchanged with a note,
because NTP keeps hosts' clocks equal, but nobody checked that here. Local times without a time zone, and times counted from an
unknown start, cannot be compared with a trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.ingest.manifest import RecordingRef

MAX_OFFSET_NS = 1 << 62  # A larger offset is damage: times would no longer fit into 64 bits.
DAY_NS = 86_400 * 10**9  # A sampler never waits a day between samples.


@dataclass(frozen=True)
class SampleClock:
    """Conversion of recorded times to the traces' clock: times ``stretch``, plus ``offset_ns``.

    ``name`` is "unix" for absolute times, "placed" if one of the sources gave an offset, and "local" or "unknown" if the times
    cannot be compared with a trace.
    """

    name: str = "unix"
    offset_ns: int = 0
    stretch: float = 1.0
    reason: str = ""

    def times(self, time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return recorded times on the traces' clock."""
        if self.stretch != 1.0:
            time_ns = np.rint(time_ns * self.stretch).astype(np.int64)
        return time_ns + self.offset_ns

    @property
    def known(self) -> bool:
        """Whether the times can be compared with a trace with absolute times."""
        return self.name in ("unix", "placed")

    def shares(self, trace_clock: str) -> bool:
        """Return whether these times and a trace's times are on one clock."""
        return self.name == "placed" or (self.name == "unix" and trace_clock == "unix")


AS_RECORDED = SampleClock()


@dataclass(frozen=True)
class ClockOrigin:
    """What a telemetry recording states about its own clock.

    ``clock`` is its kind, ``host`` its host. ``behind_ns`` is the difference that the dashboard ``pushed_to`` measured: positive if
    the host's clock is behind the dashboard's.
    """

    clock: str
    host: str | None = None
    pushed_to: str | None = None
    behind_ns: int | None = None
    assumed_interval_ns: int | None = None
    first_ns: int = 0
    last_ns: int = 0


def origin_of(recording: Recording) -> ClockOrigin:
    """Read a telemetry recording's data about its clock."""
    clock, host, first, last, metadata = recording.rows("SELECT clock, host, first_ns, last_ns, metadata FROM recording")[0]
    try:
        fields = json.loads(metadata or "{}")
    except ValueError:
        fields = {}
    pushed = fields.get("pushed") if isinstance(fields, dict) else None
    pushed = pushed if isinstance(pushed, dict) else {}
    behind = pushed.get("clock_offset_ns")
    interval = fields.get("assumed_interval_ns") if isinstance(fields, dict) else None
    return ClockOrigin(
        clock=str(clock),
        host=host,
        pushed_to=str(pushed["host"]) if pushed.get("host") else None,
        behind_ns=behind if isinstance(behind, int) and abs(behind) < MAX_OFFSET_NS else None,
        assumed_interval_ns=interval if isinstance(interval, int) and interval > 0 else None,
        first_ns=int(first or 0),
        last_ns=int(last or 0),
    )


def place(
    refs: Sequence[RecordingRef], origins: Mapping[str, ClockOrigin], traces: Iterable[RecordingRow]
) -> dict[str, SampleClock]:
    """Return the clock of every telemetry recording of a run."""
    hosts = {trace.host for trace in traces if trace.host is not None}
    return {ref.id: _clock_of(ref, origins[ref.id], hosts, origins.values()) for ref in refs}


def _clock_of(ref: RecordingRef, origin: ClockOrigin, trace_hosts: set[str], origins: Iterable[ClockOrigin]) -> SampleClock:
    if ref.kind == "trace":
        return SampleClock("placed", reason="one clock: the trace's own file holds the samples")
    stretch = 1.0
    if ref.interval_ns is not None and 0 < ref.interval_ns < DAY_NS and origin.assumed_interval_ns:
        stretch = ref.interval_ns / origin.assumed_interval_ns
    if ref.offset_ns is not None and abs(ref.offset_ns) < MAX_OFFSET_NS:
        return SampleClock("placed", ref.offset_ns, stretch, "as given")
    if origin.clock != "unix":
        reason = "its times are local and have no time zone" if origin.clock == "local" else "it has no times"
        return SampleClock(origin.clock, 0, stretch, reason)
    if not trace_hosts or origin.host is None:
        return SampleClock("unix", reason="assumed to be one clock: the recordings do not name their hosts")
    if origin.host in trace_hosts:
        return SampleClock("unix", reason="one clock: both are from the same host")
    by_push = _measured_by_push(origin, next(iter(trace_hosts)), origins) if len(trace_hosts) == 1 else None
    if by_push is not None:
        return by_push
    return SampleClock("unix", reason="the clocks of the two hosts were not compared and are assumed equal")


def _measured_by_push(origin: ClockOrigin, trace_host: str, origins: Iterable[ClockOrigin]) -> SampleClock | None:
    """Return the clock with the offset that a dashboard measured while the samples were pushed to it.

    Either the dashboard ran on the trace's host, or that host pushed to it too. None without such a measurement.
    """
    if origin.behind_ns is None or origin.pushed_to is None:
        return None
    if origin.pushed_to == trace_host:
        return SampleClock(
            "placed", origin.behind_ns, reason="the trace's host measured it while the samples were pushed to it"
        )
    peer = next(
        (o for o in origins if o.host == trace_host and o.pushed_to == origin.pushed_to and o.behind_ns is not None), None
    )
    if peer is None or peer.behind_ns is None:
        return None
    return SampleClock("placed", origin.behind_ns - peer.behind_ns, reason="the dashboard measured it: both hosts pushed to it")
