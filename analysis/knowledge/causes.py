"""The causes of lost time: one row per cause, with all its texts and properties.

To add a cause of host time, write its row before ``launch_bound``: patterns for the launching thread, its texts, a palette
colour that no other cause has, and how a replay removes the cause. All pages then use the row. Its test is a hand-made trace in
``tests/analysis/derive/lost/test_idle.py``. A new cause changes the derived files: increase ``analysis/version.py``. A cause without
a host pattern also needs code in ``analysis/derive/lost/idle.py`` (idle time) or ``exposed.py`` (copies, communication).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sawtooth.analysis.knowledge.host_names import (
    ALLOCATOR_CALL,
    ALLOCATOR_FRAME,
    COMPILE_CALL,
    COMPILE_OVERHEAD,
    COMPUTING,
    DATA_FRAME,
    DATA_MARK,
)
from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import OwnerKey

# How a replay removes a cause: host time between calls, time in calls except waits, waits for the GPU, or launch latencies.
Removal = Literal["host_time", "call_time", "waits", "latencies"]
Confidence = Literal["high", "medium", "low"]
ChangedBy = Literal["your code", "the late rank", "nobody"]  # Who can change it; "nobody" is never ranked first.


@dataclass(frozen=True)
class HostSigns:
    """How to recognize a cause on the launching thread by names.

    ``analysis/derive/host.py`` assigns a cause without patterns. An operator that matches ``computing`` counts only if it makes no
    GPU call and lasts COMPUTES_AT_LEAST_NS, because the name does not show the device. ``slowed`` means that recording slows the
    cause. Idle time in a cause that ``runs_ahead`` is charged to an earlier wait for the GPU. ``beside_graph`` is the part that
    remains if a CUDA graph launches each step ("between": only the part before the graph).
    """

    calls: re.Pattern[str] | None = None
    operators: re.Pattern[str] | None = None
    python: re.Pattern[str] | None = None
    overheads: re.Pattern[str] | None = None
    computing: re.Pattern[str] | None = None
    slowed: bool = True
    runs_ahead: bool = False
    beside_graph: Literal["all", "between"] | None = None


@dataclass(frozen=True)
class Cause:
    """One cause of lost time; ``colour`` is a key of the theme's palette.

    ``proof`` says what in a trace shows it, ``to_do`` what to change. ``loses_to`` ends the sentences "goes to …" and "is lost
    to …"; ``late_rank`` is the same for a late rank (None: never its reason). ``waits_for`` is the sentence about a GPU that
    does little else (None if no user can change it). ``evidence`` has a sentence about a piece of time for each possible owner,
    with {kernel}, {call}, {doing}, {where}, {took}, {lead} and {waited}. ``across_ranks`` is the same for collectives matched
    across ranks. ``confidence`` is its upper limit. ``phase`` is set if the cause always has the same one.
    """

    key: str
    label: str
    proof: str
    changed_by: ChangedBy
    to_do: str
    colour: str
    loses_to: str
    late_rank: str | None
    evidence: Mapping[OwnerKey, str]
    waits_for: str | None = None
    across_ranks: str | None = None
    on_host: HostSigns | None = None
    removal: tuple[Removal, ...] = ()
    confidence: Confidence = "high"
    phase: str | None = None

    @property
    def slowed(self) -> bool:
        """Whether it is host time that recording events makes longer."""
        return self.on_host is not None and self.on_host.slowed


_COPIED = "{kernel} ran alone for {took}: "
_COMMUNICATED = "{kernel} ran without computation for {took}"

# If several causes apply to the launching thread, the first in this order gets the time. Host time without any other cause goes to
# the last cause of host time.
CAUSES = (
    Cause(
        key="profiler",
        label="the profiler itself",
        proof="The trace records that the profiler stopped the host to ask for buffers, to flush them or to instrument code.",
        changed_by="nobody",
        to_do="Nothing: this time does not exist without the profiler, and the estimate leaves it out.",
        colour="smoke",
        loses_to="the profiler itself",
        late_rank="the profiler",
        evidence={"idle": "The profiler stopped the host for {took}."},
        on_host=HostSigns(
            overheads=re.compile(r"Activity Buffer Request|Buffer Flush|Instrumentation|Resource", re.IGNORECASE), slowed=False
        ),
    ),
    Cause(
        key="data_wait",
        label="data loader",
        proof="The queue is empty and the launching thread is inside the DataLoader's next, or in a range that fetches input.",
        changed_by="your code",
        to_do="Use more loader workers, prefetching, cheaper decoding and augmentation, or storage closer to the host.",
        colour="vermilion",
        loses_to="waiting for the data loader",
        late_rank="its data loader",
        waits_for="It waits for the data loader.",
        evidence={"idle": "The queue was empty and the host was fetching input ({doing}){where} for {took}."},
        on_host=HostSigns(operators=DATA_MARK, python=DATA_FRAME, slowed=False, beside_graph="all"),
        removal=("host_time",),
        phase="input",
    ),
    Cause(
        key="allocator",
        label="allocator",
        proof="The queue is empty and the launching thread is in a call that allocates or frees device memory, or waits in one.",
        changed_by="your code",
        to_do="Leave some memory free and keep shapes the same, so that the caching allocator reuses its blocks. Do not call empty_cache in the loop.",
        colour="violet",
        loses_to="allocating and freeing device memory",
        late_rank="its allocator",
        waits_for="It waits for device memory to be allocated and freed.",
        evidence={
            "idle": "The queue was empty and the host was in {call} ({doing}){where}: device memory was allocated or freed."
        },
        on_host=HostSigns(calls=ALLOCATOR_CALL, python=ALLOCATOR_FRAME),
        removal=("host_time", "waits"),
    ),
    Cause(
        key="compilation",
        label="compilation",
        proof="The queue is empty and the launching thread compiles, tunes or loads code. The first launch of a kernel counts as loading if it takes 50 times as long as a usual launch.",
        changed_by="your code",
        to_do="Keep shapes the same, so that nothing is compiled again, and warm up before the steps that count.",
        colour="indigo",
        loses_to="compilation",
        late_rank="compilation",
        waits_for="It waits for code to be compiled or loaded.",
        evidence={"idle": "The queue was empty and the host was compiling or loading code ({doing}){where}."},
        on_host=HostSigns(
            calls=COMPILE_CALL,
            operators=re.compile(r"\(dynamo_timed\)|CachingAutotuner|autotun|codecache|AsyncCompile", re.IGNORECASE),
            overheads=COMPILE_OVERHEAD,
        ),
        removal=("host_time",),
    ),
    Cause(
        key="blocking_copy",
        label="blocking copy",
        proof="A copy from pageable memory, or a synchronous copy, blocks the launching thread or runs while nothing computes.",
        changed_by="your code",
        to_do="Use pinned memory and non_blocking=True, and make tensors on the GPU.",
        colour="honey",
        loses_to="copies that block the host",
        late_rank="copies that block its host",
        waits_for="It waits for copies that block the host.",
        evidence={
            "idle": "The host was blocked in {call} ({doing}){where}, a copy from pageable memory or a synchronous copy, and could not queue ahead.",
            "exposed_memcpy": _COPIED + "a copy from pageable memory, or a synchronous copy, blocks the host ({doing}){where}.",
        },
        on_host=HostSigns(),
        removal=("host_time", "waits"),
    ),
    Cause(
        key="host_compute",
        label="operators on the CPU",
        proof="The queue is empty and the launching thread is inside an operator that computes for at least 50 µs without a GPU call.",
        changed_by="your code",
        to_do="Compute on the GPU: move the tensors there first, or do this in the loader's workers.",
        colour="plum",
        loses_to="operators on the CPU",
        late_rank="operators on its CPU",
        waits_for="It waits for operators that compute on the CPU.",
        evidence={"idle": "The queue was empty and the host computed on the CPU ({doing}){where} before it launched {kernel}."},
        on_host=HostSigns(computing=COMPUTING, slowed=False, runs_ahead=True, beside_graph="all"),
        removal=("host_time",),
    ),
    Cause(
        key="launch_bound",
        label="kernel launches",
        proof="The queue is empty and the launching thread is inside operators or launch calls.",
        changed_by="your code",
        to_do="Launch less for the same work: CUDA graphs, torch.compile, larger batches.",
        colour="sienna",
        loses_to="the host launching kernels",
        late_rank="kernel launches",
        waits_for="It waits for the host to launch kernels.",
        evidence={"idle": "The queue was empty and the host was inside {doing}{where} before it launched {kernel}."},
        on_host=HostSigns(runs_ahead=True),
        removal=("host_time", "call_time"),
    ),
    Cause(
        key="python_host",
        label="Python on the host",
        proof="The queue is empty and the launching thread is outside every operator and call: the rest of the host's time.",
        changed_by="your code",
        to_do="Move logging, metrics and bookkeeping out of the loop, or do them every hundredth step.",
        colour="ochre",
        loses_to="Python on the host",
        late_rank="Python on its host",
        waits_for="It waits for Python on the host.",
        evidence={
            "idle": "The queue was empty and the host ran {took} outside any operator{where} before it launched {kernel}."
        },
        on_host=HostSigns(runs_ahead=True, beside_graph="between"),
        removal=("host_time",),
    ),
    Cause(
        key="host_sync",
        label="host waits for a result (sync)",
        proof="The GPU is idle after the host waited for it, because the host could not queue ahead. At most the time that the host waited counts.",
        changed_by="your code",
        to_do="Do not call .item(), .cpu() or print on a tensor in the loop. Keep logged values on the GPU and read them rarely.",
        colour="crimson",
        loses_to="the host waiting for a result (sync)",
        late_rank="its host waiting for a result (sync)",
        waits_for="The host keeps waiting for the device and cannot queue ahead.",
        evidence={
            "idle": "The host had waited {waited} for the GPU in {call} ({doing}){where} and could not queue ahead.",
            "exposed_memcpy": _COPIED + "the host waited for it ({doing}){where}.",
        },
        removal=("waits",),
    ),
    Cause(
        key="launch_latency",
        label="gaps between kernels",
        proof="The operation that ends the gap was queued before the gap began, and its stream was free.",
        changed_by="nobody",
        to_do="Nothing directly: fewer, longer kernels have fewer such gaps, and CUDA graphs shorten the gaps.",
        colour="slate",
        loses_to="gaps between queued kernels",
        late_rank="gaps between kernels",
        evidence={"idle": "{kernel} had been queued {lead} before; the GPU took {took} to start it."},
        removal=("latencies",),
    ),
    Cause(
        key="comm_wait",
        label="waiting for another rank or stream",
        proof="A collective lasts longer than the shortest of its ranks, or a queued operation waits for another stream.",
        changed_by="the late rank",
        to_do="Look at what the late rank does that the others do not.",
        colour="pink",
        loses_to="waiting for another rank or stream",
        late_rank=None,
        waits_for="It waits for another rank or stream.",
        evidence={
            "idle": "{kernel} had been queued {lead} before and its stream was free: it waited for another stream.",
            "exposed_comm": _COMMUNICATED + ": it waited for a later rank.",
        },
        across_ranks="A collective ran without computation and waited for a rank that had not joined it yet.",
        confidence="medium",
    ),
    Cause(
        key="comm_transfer",
        label="communication transfer",
        proof="A collective runs, all its ranks have joined it, and nothing computes at the same time.",
        changed_by="your code",
        to_do="Overlap it with computation, send less or in other portions, or use a faster link.",
        colour="orchid",
        loses_to="communication not overlapped by compute",
        late_rank=None,
        waits_for="It waits for data from other GPUs.",
        evidence={"exposed_comm": _COMMUNICATED + ": transfer."},
        across_ranks="A collective ran without computation; all its ranks had joined it, so this is the transfer.",
    ),
    Cause(
        key=UNATTRIBUTED,
        label="cause not in the trace",
        proof="The launch, or what the operation waited for, is not in the trace.",
        changed_by="nobody",
        to_do="Record more: the host's calls, and every rank of the job.",
        colour="fog",
        loses_to="waits that the trace does not explain",
        late_rank="waits that its trace does not explain",
        evidence={
            "idle": "Nothing in the trace shows why {kernel} started {took} late: its launch, or what it waited for, is missing.",
            "exposed_memcpy": _COPIED + "an asynchronous copy that no computation overlapped ({doing}){where}.",
            "exposed_comm": _COMMUNICATED + "; with one rank, waiting for others and transfer cannot be distinguished.",
        },
        confidence="low",
    ),
)

CAUSE_OF = {cause.key: cause for cause in CAUSES}
CAUSE_KEYS = tuple(CAUSE_OF)
HOST_CAUSES = tuple(cause.key for cause in CAUSES if cause.on_host is not None)  # What the host does between two calls.
WAIT_CAUSES = tuple(cause.key for cause in CAUSES if "waits" in cause.removal)  # Why a call waits for the GPU.
REMOVABLE = tuple(cause.key for cause in CAUSES if cause.removal)  # A replay can remove these.
# These causes are never named as the largest loss, because users cannot remove them.
NOT_RANKED_FIRST = tuple(cause.key for cause in CAUSES if cause.changed_by == "nobody")
BETWEEN_RANKS = tuple(cause.key for cause in CAUSES if cause.across_ranks is not None)  # These causes are due to other ranks.
