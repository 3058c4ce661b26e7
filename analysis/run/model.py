"""What is known of an analysed run: its devices, what ranks' collectives say together, and findings. Data only; other modules make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from sawtooth.analysis.intervals import Intervals
from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.metrics.witness import StepWork
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.run.compile_log import CompileLog
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.parallel import GroupUse, Pipeline
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry.of_run import RunTelemetry
from sawtooth.analysis.telemetry.profile_fit import Representativeness
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.telemetry.troughs import Troughs
from sawtooth.ingest.schema import Manifest

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
Claim = Literal["gain", "ceiling", "throughput", "caution"]
StragglerKind = Literal["rank", "set", "host", "stage"]

SEND_RECEIVE = "sendrecv"  # the name of a pair of sender and receiver, whatever its two sides say
NO_GAIN = 1.005  # half a percent: a replay reproduces the recorded step no better


@dataclass(frozen=True)
class CodeChange:
    """One way to write the fix. ``framework`` is PyTorch, Lightning or Transformers."""

    framework: str
    before: str
    after: str


@dataclass(frozen=True)
class Explains:
    """The lost time that the findings of a rule account for and how they stand to others', so that nobody else need know the rule by its name.

    ``causes`` are the ledger's; where they are no more than the mechanism, ``called`` is what the time is called in a sentence. ``hidden``
    is time that the profiled steps do not show, which what they show cannot be named by. ``late_rank`` is one rank's lateness: the same time
    again as its own findings, and that it alone loses it. ``part_of`` is the rule whose general finding these are a part of.

    ``host_pace`` rests on how fast the host is without the profiler, and makes all of its work cheaper. ``chosen`` is what somebody decided, and
    no fault while it costs little. ``as_graph`` launches a step as a CUDA graph, and ``cuts_graph`` is what no graph can hold. ``captures_graph``
    says that the profiled steps capture one, which the run does once. ``schedule`` is a matter of how a pipeline's microbatches follow each other.

    ``sets`` are the choices of a run's set-up that the advice makes (``compare.changed.traits``), with the value where only that is meant: "dtype TF32".
    """

    causes: tuple[str, ...] = ()
    called: str | None = None
    hidden: bool = False
    late_rank: bool = False
    part_of: str | None = None
    host_pace: bool = False
    chosen: bool = False
    as_graph: bool = False
    cuts_graph: bool = False
    captures_graph: bool = False
    schedule: bool = False
    sets: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool:
        """Whether torch.compile is the advice or a way to it: a CUDA graph is one of its modes."""
        return self.as_graph or "compile" in self.sets


@dataclass(frozen=True)
class Finding:
    """What a rule found: a title in plain words with its number, what proves it, what to change and what that brings.

    ``ceiling_ms_per_step`` is all that the cause owns; ``predicted_step_ms`` comes from the replay with the cause removed, None where the
    gain cannot be predicted (``prediction_note`` says why), with the interval that holds four of five such predictions. ``evidence`` rows are plain data; a row with ``start_ns`` and ``end_ns`` links
    to the timeline. ``edits`` are the replay's changes, so that several fixes can be combined. ``ends_the_run`` puts a finding before
    those that only cost time. ``explains`` is its rule's. ``samples_per_second_times``, at most, is what a change brings that leaves the step as long.
    """

    rule: str
    severity: Severity
    title: str
    fix: str
    confidence: Confidence
    ceiling_ms_per_step: float | None = None
    predicted_step_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    predicted_speedup: float | None = None
    prediction_note: str = ""
    risk: str = ""
    changes: tuple[CodeChange, ...] = ()
    evidence: tuple[dict[str, Any], ...] = ()
    edits: tuple[Edit, ...] = ()
    ends_the_run: bool = False
    explains: Explains = Explains()
    samples_per_second_times: float | None = None

    @property
    def gain_ms(self) -> float:
        """What the change brings a step: as predicted, else at most."""
        if self.predicted_speedup is not None and self.predicted_step_ms is not None:
            return self.predicted_step_ms * (self.predicted_speedup - 1)
        return self.ceiling_ms_per_step or 0.0

    @property
    def claims(self) -> Claim:
        """What the finding claims: a predicted gain, a ceiling that no change may exceed, more samples in the same step, or nothing but a caution."""
        if self.predicted_step_ms is not None:
            return "gain" if (self.predicted_speedup or 0.0) > NO_GAIN else "caution"
        if self.ceiling_ms_per_step:
            return "ceiling"
        return "throughput" if self.samples_per_second_times else "caution"


@dataclass(frozen=True)
class PlanStep:
    """One fix of the plan: a step's time before it, with the fixes before it made, and after it with its interval (ms)."""

    rule: str
    before_ms: float
    predicted_step_ms: float
    predicted_low_ms: float
    predicted_high_ms: float


@dataclass(frozen=True)
class NotChecked:
    """A rule that could not speak, and why."""

    rule: str
    because: str


@dataclass(frozen=True)
class RankWaits:
    """One rank in its counted steps, ms per step: ``wait_ms`` in collectives (overlapped or not), ``late_ms`` that each of the others, on average,
    waited for it with nothing to compute, as profiled: the profiler slows one host more than another.

    ``last_share`` is the share of collectives it came last to. ``clock_offset_ns`` is its clock minus the first rank's, from the ends of shared
    collectives, None where they share none, directly or through others; ``clock_error_ns`` its standard error. ``unprofiled_wait_ms`` is what it waits where all
    ranks are replayed together without the profiler, None where they cannot be; ``slowed_ms`` how much longer its kernels were recorded for
    collectives that waited beside them, ``held_ms`` how long single ones were held up, as where another process has turns on the GPU.
    """

    position: int
    rank: int | None
    device: int
    wait_ms: float
    late_ms: float
    last_share: float | None
    clock_offset_ns: int | None
    clock_error_ns: int | None
    unprofiled_wait_ms: float | None = None
    slowed_ms: float = 0.0
    held_ms: float = 0.0


@dataclass(frozen=True)
class Straggler:
    """Who holds the job up by its own doing: one rank, all of a host, a pipeline stage, or several ranks together (set).

    ``own_ms`` is what each of them takes of a step beyond its peers (the median over them), without the profiler; ``gain_ms`` what the
    job's step gains where they are as fast, or share work of another batch size with their peers. ``reason`` is a cause of lost time, "work" (more kernel time), "turns" (another process on
    its GPU), "clock" or "power" (slower GPU by telemetry), None where nothing tells or the reasons differ. ``kernel_ratio`` is how many
    times as long equal kernels take, where that is it. ``at_most``: the replayed hosts hide it, and hosts as fast as their error
    allows would not; ``gain_ms`` is of those. Of a job of many ranks, ``positions`` are those that are among the run's, perhaps none.
    """

    kind: StragglerKind
    positions: tuple[int, ...]
    ranks: tuple[int | None, ...]
    host: str | None
    reason: str | None
    kernel_ratio: float | None
    own_ms: float
    gain_ms: float
    at_most: bool = False


@dataclass(frozen=True)
class Communication:
    """What the ranks' recordings say together.

    ``rows`` has one row per matched collective and rank: collective, position, gpu_op_id, start_ns, dur_ns, shortest_ns, wait_ns, last,
    exposed_ns, exposed_wait_ns, counted, name, dtype, bytes, group, group_size, ranks (matched). ``unmatched`` counts communication kernels without a
    counterpart. ``notes`` say what limits the numbers. ``stragglers`` hold the job up by their own doing, most gain first. ``step_ms`` is the
    job's step without the profiler, from the ranks replayed together; None where they cannot be. ``paced_ms`` is the step that stragglers are
    judged at: with hosts brought to what marks or telemetry say of it. ``in_turn_ms`` is what even the rank that waits least in a step waits for
    others: those that hold each other up by turns. ``groups`` are its process groups by kind, ``schedule`` its pipeline's. ``heat`` is what every rank takes and waits in every step (of ``ranks.heat``) where the job
    has more ranks than the run has recordings, else None.
    """

    rows: pd.DataFrame
    ranks: tuple[RankWaits, ...]
    unmatched: int
    notes: tuple[str, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    step_ms: float | None = None
    paced_ms: float | None = None
    in_turn_ms: float = 0.0
    groups: tuple[GroupUse, ...] = ()
    schedule: Pipeline | None = None
    heat: pd.DataFrame | None = None
    job_ranks: int | None = None

    @property
    def pipeline(self) -> bool:
        """Whether ranks send to each other: then their work differs by design, and each waits at times."""
        return not self.rows.empty and bool((self.rows["name"] == SEND_RECEIVE).any())


@dataclass(frozen=True)
class LedgerRow:
    """One owner (and, for lost time, one cause) of the steady window of a device."""

    device: int
    owner: str
    cause: str | None
    ns: int
    ms_per_step: float | None
    ms_per_step_unprofiled_est: float | None
    share: float


@dataclass(frozen=True)
class RankResult:
    """One device of one ``trace``. ``steps`` has the derived table's columns; ``categories`` category, ns, launches, share.

    ``exposed_causes`` cuts the exposed communication by cause where other ranks tell it, else it is empty. ``work`` is what its GPU does in
    a step. Of several ranks that were replayed together ``best`` is the job's step time, but for what the profile shows.
    """

    recording_id: str
    rank: int | None
    device: int
    device_name: str | None
    gpu: Gpu | None
    trace: RecordingRow
    facts: DeviceFacts
    step_source: str
    steps: pd.DataFrame
    window_ns: int
    best: BestStepTime
    metrics: dict[str, Reading]
    ledger: list[LedgerRow]
    categories: pd.DataFrame
    phases: list[dict[str, Any]] = field(default_factory=list)
    telemetry: DeviceTelemetry | None = None
    represents: Representativeness | None = None
    exposed_causes: dict[str, Intervals] = field(default_factory=dict)
    work: StepWork | None = None

    @cached_property  # rules ask dozens of times
    def counted(self) -> pd.DataFrame:
        """The steps that count; not to be changed."""
        return self.steps[self.steps["counted"]]

    @property
    def host(self) -> str | None:
        """The machine that its trace names."""
        return self.trace.host

    @property
    def device_step_ms(self) -> list[float]:
        """Device durations of the counted steps, ms."""
        rows = self.counted
        return [float(v) / 1e6 for v in rows["end_ns"] - rows["start_ns"]]


@dataclass(frozen=True)
class RunResult:
    """A run, analysed. ``lead`` is the slowest rank's device, which sets the pace; None where no trace has GPU work.

    ``plan`` are the fixes
    made one after the other. ``communication`` is what the ranks' collectives say together, None for one rank; ``host`` what the host
    did where no trace has GPU work; ``troughs`` what the lead's
    sawtooth waits for; ``compile_log`` what torch.compile's own log says.
    """

    manifest: Manifest
    ranks: list[RankResult]
    lead: RankResult | None
    recordings: list[RecordingRow]
    diagnostics: list[Diagnostic]
    metrics: dict[str, Reading]
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    plan: tuple[PlanStep, ...] = ()
    telemetry: RunTelemetry = RunTelemetry(())  # noqa: RUF009  (frozen, so it can be shared)
    communication: Communication | None = None
    troughs: Troughs | None = None
    host: HostWork | None = None
    compile_log: CompileLog | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs the job has: those of the run, or of all ranks where only representatives are among the run's."""
        whole = self.communication.job_ranks if self.communication is not None else None
        return whole or len(self.ranks)
