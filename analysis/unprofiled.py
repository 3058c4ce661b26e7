"""The run as it is without the profiler: a replay with the profiler's own cost taken off the host.

Recording an event costs the host time, and a launch-bound run shows it in full: three times its true step time is common. The
cost is calibrated on the trace itself. What the profiler does not slow (waiting for the data loader, for the queue, for the GPU)
is left alone or follows from the replay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from analysis.events import Events
from analysis.host import matching
from analysis.replay import HOST_CAUSES, I64, WAIT_CAUSES, ReplayProblem

# Fitted on 45 profiles that the host limits, of 33 runs with a stopwatch beside them (MLPs, transformers, CNNs; eager and compiled; with and without
# shapes and stacks; hosts on which one event cost from 0.7 to 6.5 µs): mean error 9 %, worst 45 %. A fixed cost, or a share of the launch call,
# errs by 50 % on one host or the other.
NATIVE_LAUNCH_NS = (
    2_600  # what a launch call takes by itself on the servers measured; what it takes longer shows how slow recording is here
)
COST_PER_EXCESS = 1.8  # an event costs the host this many times that excess
WITHOUT_SHAPES = 0.7  # share of the cost where no input shapes were recorded: 1.0 against 1.4 µs an event
LEAST_COST_NS, MOST_COST_NS = 500, 7_000  # costs measured were 0.7 to 6.5 µs; beyond, the host itself is slow
DEFAULT_COST_NS = 1_500  # where a trace has no launch call to calibrate on: the middle of what was measured
PYTHON_CALL_NS = 700  # cost of recording one Python call: 0.3 to 1.2 µs, most in compiled code
FASTEST_PERCENTILE = 10  # a launch call near this percentile met no lock, no fault and no full queue
LEAST_SHARE = 0.2  # host time never shrinks below this share: what is left when the estimate takes off too much
LAUNCH_KERNEL = re.compile(r"launchkernel", re.IGNORECASE)
PROFILER, DATA_WAIT = HOST_CAUSES.index("profiler"), HOST_CAUSES.index("data_wait")


@dataclass(frozen=True)
class RecordingCost:
    """What recording cost the host: ns per operator, annotation or runtime call, and per Python call."""

    event_ns: int
    python_call_ns: int = PYTHON_CALL_NS
    calibrated: bool = True  # on this trace, not taken from others

    @property
    def sentence(self) -> str:
        """Say the cost and where it comes from."""
        source = (
            "calibrated on this trace's launch calls"
            if self.calibrated
            else "as on other traces: this one has no kernel launches"
        )
        return f"Recording cost the host about {self.event_ns / 1000:.1f} µs an event, {source}."


def recording_cost(events: Events) -> RecordingCost:
    """Calibrate the profiler's cost on the launch calls of this trace."""
    calls = events.calls
    launches = matching(events.names, LAUNCH_KERNEL)[calls.name] & (calls.gpu_ops == 1)
    if not launches.any():
        return RecordingCost(DEFAULT_COST_NS, calibrated=False)
    fastest = float(np.percentile((calls.end - calls.start)[launches], FASTEST_PERCENTILE))
    shapes = bool((events.ops.signature >= 0).any())
    cost = COST_PER_EXCESS * (fastest - NATIVE_LAUNCH_NS) * (1 if shapes else WITHOUT_SHAPES)
    return RecordingCost(int(np.clip(cost, LEAST_COST_NS, MOST_COST_NS)))


def without_profiler(problem: ReplayProblem, cost: RecordingCost) -> ReplayProblem:
    """Return ``problem`` with the host as fast as it is unprofiled: the cost of what was recorded in a gap or a call taken off."""
    host = problem.host
    parts = host.gap_parts.copy()
    movable = np.ones(len(HOST_CAUSES), dtype=bool)
    movable[[PROFILER, DATA_WAIT]] = False
    old = parts[:, movable].sum(axis=1)
    spent = cost.event_ns * host.events + cost.python_call_ns * host.python_calls
    new = np.maximum((LEAST_SHARE * old).astype(np.int64), old - spent)
    shrunk = _scaled(parts[:, movable], np.minimum(new, old))
    parts[:, movable] = np.where(host.paced[:, None], shrunk, parts[:, movable])
    parts[:, PROFILER] = 0
    own = np.maximum((LEAST_SHARE * host.own).astype(np.int64), host.own - cost.event_ns)
    return with_gap_parts(replace(problem, host=replace(host, own=own)), parts)


def _scaled(parts: I64, total: I64) -> I64:
    """Return rows of ``parts`` scaled to sum to ``total`` exactly: each the difference of rounded running sums."""
    running = np.cumsum(parts, axis=1)
    whole = np.maximum(running[:, -1:], 1) if parts.shape[1] else running
    ends = (running.astype(np.float64) * (total[:, None] / whole)).round().astype(np.int64)
    ends[:, -1] = np.where(running[:, -1] > 0, total, 0)
    return np.diff(np.minimum(ends, ends[:, -1:]), axis=1, prepend=0)


def with_gap_parts(problem: ReplayProblem, parts: I64) -> ReplayProblem:
    """Return ``problem`` with other host gaps; a node without predecessor keeps its start."""
    host = problem.host
    gap = np.where(host.pred >= 0, parts.sum(axis=1), host.gap)
    return replace(problem, host=replace(host, gap_parts=parts, gap=gap))


def without_cause(problem: ReplayProblem, cause: str) -> ReplayProblem:
    """Return ``problem`` with one cause of lost time removed, the rest unchanged."""
    host, ops = problem.host, problem.ops
    parts, own = host.gap_parts.copy(), host.own
    if cause in HOST_CAUSES:
        parts[:, HOST_CAUSES.index(cause)] = 0
        if cause == "launch_bound":
            own = np.zeros_like(own)
    if cause == "launch_latency":
        zeroed = {name: np.minimum(getattr(ops, name), 0) for name in ("after_stream", "after_launch", "after_dep")}
        return replace(problem, ops=replace(ops, **zeroed))
    wait_ptr, wait_op = host.wait_ptr, host.wait_op
    if cause in WAIT_CAUSES:
        node = np.repeat(np.arange(len(host)), np.diff(wait_ptr))
        stay = host.wait_cause[node] != WAIT_CAUSES.index(cause)
        wait_ptr, wait_op = np.searchsorted(node[stay], np.arange(len(host) + 1)).astype(np.int64), wait_op[stay]
    return with_gap_parts(replace(problem, host=replace(host, own=own, wait_ptr=wait_ptr, wait_op=wait_op)), parts)
