"""The run without the profiler: a replay with the profiler's own cost removed from the host.

Recording an event costs host time. In a launch-bound run, all of this time makes the step longer: profiled steps often take three
times as long. The cost is calibrated on the trace itself.
The profiler does not slow waits for loader workers, for the queue or for the GPU. Waits for workers do not change here; the
replay computes the others. If the training process loads its batches itself, recording slows this loading too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import LAUNCH_KERNEL, PYTHON_CALL_NS, matches_of
from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.replay.simulation import I64, ReplayProblem

# The cost of recording grows with the slowness of the host. The trace shows this slowness in two places. The first are
# wrappers: operators that only call one other operator. Their own time is mostly the cost of recording the called operator.
# The second are launch calls: CUPTI hooks them, and it also hooks calls that no trace shows. The factors were fitted on 37
# host-limited profiles, each with a stopwatch, on three kinds of host (MLPs, transformers, CNNs, mixtures of experts,
# reinforcement learning; eager and compiled). The mean error is 7 %, the worst 26 % where the host itself was steady.
WRAPPERS = {  # By (wrapper, the only operator it calls): the wrapper's own time divided by that of aten::t.
    ("aten::t", "aten::transpose"): 1.0,
    ("aten::transpose", "aten::as_strided"): 1.0,
    ("aten::detach", "detach"): 0.55,
}
MIN_WRAPPERS = 10  # With fewer wrappers of a kind, their median is not reliable.
OPERATOR_PER_WRAPPER = 1.2  # The recording of an operator costs this factor times a wrapper's own time.
LAUNCH_PER_EXCESS = 4.5  # The recording of a launch call costs this factor times the call's time above NATIVE_LAUNCH_NS.
NATIVE_LAUNCH_NS = 1_500  # No measured host launched faster than this.
CALL_PER_LAUNCH = 0.5  # The recording of another runtime call costs this share of a launch call's cost.
INSIDE_LAUNCH = 0.4  # This share of a launch's cost lies within the call. The rest is removed from the gap before the call.
FASTEST_PERCENTILE = 10  # A launch call near this percentile waited for no lock, page fault or full queue.
MIN_WRAPPER_NS, MAX_WRAPPER_NS = 400, 6_000  # Measured wrappers took 0.9 to 4.3 µs. Longer wrappers do other work.
MIN_LAUNCH_NS, MAX_LAUNCH_NS = 2_000, 9_000  # Measured launch calls took 3.3 to 7.3 µs.
# Middle of the measured values, used if a trace has no calls for the calibration.
DEFAULT_WRAPPER_NS, DEFAULT_LAUNCH_NS = 1_500, 4_000
MIN_SHARE = 0.2  # Host time never shrinks below this share, because the estimate may remove too much.
# By cause: whether recording slows this host time, and whether it is loading.
SLOWED_CAUSES = np.array([CAUSE_OF[key].slowed for key in HOST_CAUSES])
LOADING_CAUSES = np.array([key == "data_wait" for key in HOST_CAUSES])


@dataclass(frozen=True)
class RecordingCost:
    """The host time (ns) that recording costs per operator, launch, other runtime call and Python call.

    ``inside_ns`` is the part of ``launch_ns`` within the launch call. ``loads_inline`` means that the training process loads its
    batches itself. Then recording also slows the loading.
    """

    operator_ns: int
    launch_ns: int
    inside_ns: int
    call_ns: int
    python_call_ns: int = PYTHON_CALL_NS
    calibrated: bool = True  # True if this trace was used for the calibration, False if other traces were.
    loads_inline: bool = False
    at_limit: bool = False  # This trace's calls are outside the measured range and were clipped to it.

    @property
    def sentence(self) -> str:
        """Return a sentence with the cost and its source."""
        source = (
            "estimated from this trace"
            if self.calibrated
            else "the limits measured on other hosts, because this trace's values are beyond them"
            if self.at_limit
            else "measured on other traces, because this trace has too few calls"
        )
        return f"The profiler's cost is subtracted: about {self.operator_ns / 1000:.1f} µs per operator and {self.launch_ns / 1000:.1f} µs per kernel launch, {source}."


def recording_cost(events: TraceEvents) -> RecordingCost:
    """Calibrate the profiler's cost on the wrappers and launch calls of this trace."""
    wrapper, launch = _wrapper_ns(events), _launch_ns(events)
    calibrated = (
        wrapper is not None
        and launch is not None
        and MIN_WRAPPER_NS < wrapper < MAX_WRAPPER_NS
        and MIN_LAUNCH_NS < launch < MAX_LAUNCH_NS
    )
    at_limit = wrapper is not None and launch is not None and not calibrated
    wrapper = float(np.clip(DEFAULT_WRAPPER_NS if wrapper is None else wrapper, MIN_WRAPPER_NS, MAX_WRAPPER_NS))
    launch = float(np.clip(DEFAULT_LAUNCH_NS if launch is None else launch, MIN_LAUNCH_NS, MAX_LAUNCH_NS))
    return RecordingCost(
        round(OPERATOR_PER_WRAPPER * wrapper),
        round(LAUNCH_PER_EXCESS * (launch - NATIVE_LAUNCH_NS)),
        round(INSIDE_LAUNCH * launch),
        round(CALL_PER_LAUNCH * launch),
        calibrated=calibrated,
        at_limit=at_limit,
        loads_inline=any(LOADS_INLINE in name for name in events.names),
    )


def _wrapper_ns(events: TraceEvents) -> float | None:
    """Return the median own time of ``aten::t`` or a similar wrapper; None if there are too few.

    Times of other wrappers are divided by their ratio to ``aten::t``.
    """
    ops, calls = events.ops, events.calls
    children = np.bincount(ops.parent[ops.parent >= 0], minlength=len(ops))
    children += np.bincount(calls.cpu_op[calls.cpu_op >= 0], minlength=len(ops))
    inner = np.flatnonzero(ops.parent >= 0)
    inner = inner[children[ops.parent[inner]] == 1]
    outer = ops.parent[inner]
    wrapper_ns = (ops.end - ops.start)[outer] - (ops.end - ops.start)[inner]
    ids = {name: i for i, name in enumerate(events.names)}
    costs = []
    for (wrapper, callee), ratio in WRAPPERS.items():
        own_of_kind = wrapper_ns[(ops.name[outer] == ids.get(wrapper, -1)) & (ops.name[inner] == ids.get(callee, -1))]
        if len(own_of_kind) >= MIN_WRAPPERS:
            costs.append(float(np.median(own_of_kind)) / ratio)
    return float(np.mean(costs)) if costs else None


def _launch_ns(events: TraceEvents) -> float | None:
    """Return the duration of the fastest launch calls; None if there are none (CUDA graphs)."""
    calls = events.calls
    launches = matches_of(events.names, LAUNCH_KERNEL)[calls.name] & (calls.gpu_ops == 1)
    return float(np.percentile((calls.end - calls.start)[launches], FASTEST_PERCENTILE)) if launches.any() else None


def without_profiler(problem: ReplayProblem, cost: RecordingCost) -> ReplayProblem:
    """Return ``problem`` with the host's unprofiled speed.

    Each gap and each call becomes shorter by the cost of the events recorded in it.
    """
    host = problem.host
    parts = host.gap_parts.copy()
    slowed = SLOWED_CAUSES | LOADING_CAUSES if cost.loads_inline else SLOWED_CAUSES
    old = parts[:, slowed].sum(axis=1)
    inside = np.where(host.launches, cost.inside_ns, cost.call_ns)
    spent = cost.operator_ns * host.operators + cost.call_ns * host.calls + cost.python_call_ns * host.python_calls
    spent += np.where(host.launches, cost.launch_ns - cost.inside_ns, 0)
    new = np.maximum((MIN_SHARE * old).astype(np.int64), old - spent)
    shrunk = _scale(parts[:, slowed], np.minimum(new, old))
    parts[:, slowed] = np.where(host.is_slowed[:, None], shrunk, parts[:, slowed])
    parts[:, HOST_CAUSES.index("profiler")] = 0
    own_ns = np.maximum((MIN_SHARE * host.own).astype(np.int64), host.own - inside)
    return with_gap_parts(replace(problem, host=replace(host, own=own_ns)), parts)


def _scale(parts: I64, total: I64) -> I64:
    """Return rows of ``parts`` scaled so that each sums exactly to ``total``.

    Each value is the difference of rounded running sums.
    """
    running = np.cumsum(parts, axis=1)
    row_sums = np.maximum(running[:, -1:], 1) if parts.shape[1] else running
    ends = (running.astype(np.float64) * (total[:, None] / row_sums)).round().astype(np.int64)
    ends[:, -1] = np.where(running[:, -1] > 0, total, 0)
    return np.diff(np.minimum(ends, ends[:, -1:]), axis=1, prepend=0)


def with_gap_parts(problem: ReplayProblem, parts: I64) -> ReplayProblem:
    """Return ``problem`` with other host gaps; a node without predecessor starts at its old time."""
    host = problem.host
    gap = np.where(host.pred >= 0, parts.sum(axis=1), host.gap)
    return replace(problem, host=replace(host, gap_parts=parts, gap=gap))


def without_cause(problem: ReplayProblem, cause: str) -> ReplayProblem:
    """Return ``problem`` with one cause of lost time removed, as its ``removal`` defines."""
    host, ops, removal = problem.host, problem.ops, CAUSE_OF[cause].removal
    parts, own_ns = host.gap_parts.copy(), host.own
    if "latencies" in removal:
        zeroed = {name: np.minimum(getattr(ops, name), 0) for name in ("after_stream", "after_launch", "after_dep")}
        ops = replace(ops, **zeroed)
    if "host_time" in removal:
        parts[:, HOST_CAUSES.index(cause)] = 0
    if "call_time" in removal:
        own_ns = np.zeros_like(own_ns)
    wait_ptr, wait_op = host.wait_ptr, host.wait_op
    if "waits" in removal:
        node = np.repeat(np.arange(len(host)), np.diff(wait_ptr))
        remains = host.wait_cause[node] != WAIT_CAUSES.index(cause)
        wait_ptr, wait_op = np.searchsorted(node[remains], np.arange(len(host) + 1)).astype(np.int64), wait_op[remains]
    host = replace(host, own=own_ns, wait_ptr=wait_ptr, wait_op=wait_op)
    return with_gap_parts(replace(problem, host=host, ops=ops), parts)
