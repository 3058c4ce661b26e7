"""Traces for the replay, hand-built and generated."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from sawtooth.analysis.derive.events import GPU_KINDS
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view
from sawtooth.analysis.knowledge.owners import OWNER_KEYS, owner_of
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.simulation import ReplayProblem
from sawtooth.analysis.replay.whatif import WhatIf
from tests.support.tiny_trace import TinyTrace

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def loading() -> TinyTrace:
    """Return steps of 100 µs on the host, with time in the loader before two launches.

    The loader takes 30 µs before the first launch and 20 µs before the second.
    """
    trace = TinyTrace()
    for t in trace.each_step(3, 100.0):
        trace.op(NEXT, t + 1, t + 31, annotation=True)
        trace.launch((t + 40, t + 45), (t + 47, t + 50))
        trace.op(NEXT, t + 50, t + 70, annotation=True)
        trace.launch((t + 80, t + 85), (t + 87, t + 90))
    return trace


def problem_of(trace: TinyTrace) -> ReplayProblem:
    events, facts = trace.events(), trace.facts()
    return build_problem(events, trace.step_table(), facts, host_view(events, facts))


def launch_bound() -> TinyTrace:
    trace = TinyTrace()
    for t in trace.each_step(3, 100.0):
        trace.launch((t + 10, t + 15), (t + 17, t + 20))  # The kernel starts 2 µs after its launch.
        trace.launch((t + 50, t + 55), (t + 57, t + 60))
    return trace


def sync_every_step() -> TinyTrace:
    trace = TinyTrace()
    for t in trace.each_step(3, 100.0):
        trace.launch((t + 0, t + 5), (t + 7, t + 67))  # The kernel takes 60 µs.
        trace.call("cudaStreamSynchronize", t + 10, t + 70)  # The call returns 3 µs after the kernel.
    return trace


def pieces() -> st.SearchStrategy[TinyTrace]:
    step = st.lists(
        st.tuples(
            st.integers(0, 40), st.integers(1, 9), st.integers(1, 60), st.integers(0, 9), st.sampled_from([7, 7, 7, 20]), st.booleans()
        ),
        min_size=1, max_size=8,
    )  # fmt: skip
    return st.lists(step, min_size=2, max_size=4).map(_assemble)


def _assemble(steps: list[list[tuple[int, int, int, int, int, bool]]]) -> TinyTrace:
    trace, now, free = TinyTrace(), 0.0, {7: 0.0, 20: 0.0}
    for step in steps:
        begin = now
        for gap, own, work, latency, stream, sync in step:
            now += gap
            start = max(free[stream], now + own) + latency
            trace.op("aten::op", now, now + own)
            trace.launch((now, now + own), (start, start + work), stream=stream)
            free[stream] = start + work
            now += own
            if sync:
                end = max(now + 2, free[stream] + 1)
                trace.call("cudaStreamSynchronize", now, end)
                now = end
        now += 1
        trace.step(begin, now)
    return trace


def codes_of(trace: TinyTrace) -> np.ndarray:
    events = trace.events()
    category = ["communication" if "nccl" in events.names[n] else "other" for n in events.gpu.name]
    owners = [owner_of(c, "no", GPU_KINDS[kind]) for c, kind in zip(category, events.gpu.kind, strict=True)]
    return np.array([OWNER_KEYS.index(owner) for owner in owners], np.int8)


def best_step_time(ms: float, source: str) -> BestStepTime:
    return BestStepTime(source, Reading(ms), Reading(ms), Reading(0.1), ms, represented=source != "telemetry")


def waiting_in_each_step(kernel_us: float = 40) -> WhatIf:
    """Return steps of 60 µs of the host, each with a kernel of ``kernel_us`` that the host waits for."""
    trace = TinyTrace()
    for k in range(4):
        t = (60 + kernel_us) * k
        trace.step(t, t + 60 + kernel_us)
        trace.launch((t + 50, t + 55), (t + 55, t + 55 + kernel_us))
        trace.call("cudaStreamSynchronize", t + 55, t + 55 + kernel_us)
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def never_waiting() -> WhatIf:
    """Return steps of 100 µs on a host that never waits, with a kernel of 40 µs in each."""
    trace = TinyTrace()
    for t in trace.each_step(4, 100.0):
        trace.launch((t + 90, t + 95), (t + 97, t + 137))
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def queueing_ahead(host_us: float = 50, kernel_us: float = 100) -> WhatIf:
    """Return a host that queues a longer kernel every ``host_us``, so a step takes ``kernel_us``."""
    trace = TinyTrace()
    for k in range(4):
        queued, ready = host_us * (k + 1), host_us - 3 + kernel_us * k
        trace.step(queued - host_us, queued)
        trace.launch((queued - 10, queued - 5), (ready, ready + kernel_us))
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def host_bound(operators: int, launch_us: float = 5, spaced: float = 4) -> TinyTrace:
    """Return three steps of one launch each, with ``operators`` operators before it.

    They begin ``spaced`` µs apart.
    """
    trace, now = TinyTrace(), 0.0
    for _ in range(3):
        begin = now
        for _ in range(operators):
            trace.op("aten::view", now, now + spaced / 2)
            now += spaced
        trace.launch((now, now + launch_us), (now + launch_us + 2, now + launch_us + 3))
        now += launch_us
        trace.step(begin, now)
    return trace
