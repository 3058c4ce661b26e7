"""One part of a recording in memory: its own events, and neighbouring events that explain them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, TraceEvents
from sawtooth.analysis.derive.host import HostFacts
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.steps.host_steps import HostSteps
from sawtooth.analysis.intervals import Intervals
from sawtooth.analysis.replay.simulation import NEVER

ALL_TIMES = Intervals(np.array([NEVER], np.int64), np.array([-NEVER], np.int64))


@dataclass(frozen=True)
class Numbers:
    """The recording's ids of a part's events, ascending; None if the part has all events.

    With all events, each id is its own index.
    """

    gpu: I64 | None = None
    calls: I64 | None = None
    ops: I64 | None = None
    python: I64 | None = None


@dataclass(frozen=True)
class DerivedPart:
    """The events of some steps and of neighbouring steps.

    ``events`` and ``facts`` refer to each other by index in the part; ``numbers`` are the ids in the recording. ``own_gpu`` and
    ``own_ops`` mark the events that only this part counts. ``device_time`` and ``host_time`` are the times that the part counts
    (one interval each). ``devices`` have all steps of the recording, but only the part's own operations and its part of the
    window. ``windows`` are the complete windows. ``spans`` is, by device, the time in this part that has a ledger (empty if
    there is only one part). ``steps`` are the steps in this part.
    """

    events: TraceEvents
    facts: HostFacts
    numbers: Numbers
    host: HostSteps
    devices: list[DeviceSteps]
    windows: list[Intervals]
    spans: dict[int, Intervals]
    gpus_left_out: int
    own_gpu: NDArray[np.bool_]
    own_ops: NDArray[np.bool_]
    device_time: Intervals
    host_time: Intervals
    steps: slice
    first: bool
    last: bool
    parts: int

    def recorded(self, kind: str, places: I64) -> I64:
        """Return the recording's ids of events (``kind`` as in ``Numbers``); -1 where there is none."""
        ids = getattr(self.numbers, kind)
        return places if ids is None or not len(ids) else np.where(places >= 0, ids[np.maximum(places, 0)], -1)


def complete_recording(
    events: TraceEvents, facts: HostFacts, host: HostSteps, devices: list[DeviceSteps], gpus_left_out: int
) -> DerivedPart:
    """Return a complete recording as one part."""
    return DerivedPart(
        events=events, facts=facts, numbers=Numbers(), host=host, devices=devices,
        windows=[device.window for device in devices], spans={}, gpus_left_out=gpus_left_out,
        own_gpu=np.ones(len(events.gpu), bool), own_ops=np.ones(len(events.ops), bool), device_time=ALL_TIMES, host_time=ALL_TIMES,
        steps=slice(None), first=True, last=True, parts=1,
    )  # fmt: skip
