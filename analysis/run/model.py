"""The data of an analysed run: its devices and findings. Other modules compute it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from string import Template
from typing import Any, Literal

import pandas as pd

from sawtooth.analysis.derive.lost.uneven import UnevenWait
from sawtooth.analysis.integrity.failed_check import FailedCheck, deciding_check
from sawtooth.analysis.intervals import Intervals
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.metrics.step_time_evidence import StepWork
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.run.compile_log import CompileLog
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.job import LedgerRow as LedgerRow
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry.representativeness import Representativeness, TelemetryStatement
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.telemetry.troughs import Troughs
from sawtooth.ingest.manifest import Manifest

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
Claim = Literal["gain", "ceiling", "throughput", "caution"]

NO_GAIN = 1.005  # Speedup. A replay reproduces the recorded step to half a percent at best.
NO_GAIN_SHARE = 0.99  # Share of the step. An interval that reaches this step time includes "no gain".


def may_gain_nothing(high_ms: float | None, before_ms: float | None) -> bool:
    """Return whether a prediction's interval reaches the current step time; False if either is not known."""
    return high_ms is not None and before_ms is not None and high_ms >= NO_GAIN_SHARE * before_ms


@dataclass(frozen=True)
class CodeChange:
    """One way to write the fix; ``framework`` is PyTorch, Lightning or Transformers.

    ``of_run``: its names and sizes are the run's own. ``slot_defaults`` fills slots (``$model``) that the run does not fill.
    """

    framework: str
    before: str
    after: str
    of_run: bool = False
    slot_defaults: tuple[tuple[str, str], ...] = ()

    def filled(self, **names: str) -> CodeChange:
        """Return the change with ``names`` in its slots, and the default text in the others."""
        if not self.slot_defaults:
            return self
        before, after = (Template(text).substitute(dict(self.slot_defaults) | names) for text in (self.before, self.after))
        return CodeChange(self.framework, before, after, self.of_run or any(slot in names for slot, _ in self.slot_defaults))


@dataclass(frozen=True)
class Action:
    """A change: a verb, an object with ``$amount``, and ``how``, which has its own punctuation."""

    verb: str
    object: str
    how: str = "."
    amount: float | None = None
    records_again: bool = False  # True if the change affects only the recording: the next recording shows a shorter step.

    @property
    def short(self) -> str:
        """The change without how it is done, such as "Use 8 loader workers"."""
        return f"{self.verb} {Template(self.object).safe_substitute(amount=f'{self.amount or 0:g}')}".rstrip()

    @property
    def sentence(self) -> str:
        """The change and how it is done."""
        return f"{self.short}{self.how}"


Topic = Literal[
    "hidden",  # Time that the profiled steps do not show, so that no cause in them can explain it.
    "late_rank",  # One rank's delay. Its time is also in that rank's own findings.
    "host_pace",  # Depends on the host's speed without the profiler, and makes all of its work cheaper.
    "choice",  # A decision of the user. It is not a problem while it costs little.
    "cuda_graph",  # Launches a step as a CUDA graph.
    "captures_graph",  # The profiled steps capture a graph, which the run does once.
    "fewer_flops",  # Removes work that counts as the model's, so MFU does not rise with the speed.
    "schedule",  # The order of a pipeline's microbatches.
    "power_limit",  # The power limit holds the clocks down.
    "memory",  # Advice about the GPU's memory.
    "spare_memory",  # Memory is not used.
    "marks_steps",  # Advice on marking steps. Without marks, no advice has a predicted time.
]


@dataclass(frozen=True)
class Explains:
    """The lost time that the findings of a rule explain and their topics; no other module names rules.

    ``causes`` are causes of the ledger. ``called`` names that time in a sentence, if the causes only name the mechanism. ``sets``
    are the set-up choices that the advice changes (``compare.changed.setup_traits``), with the value if it sets one, such as "dtype TF32".
    """

    causes: tuple[str, ...] = ()
    called: str | None = None
    topics: frozenset[Topic] = frozenset()
    sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The result of a rule: a title with its number, the evidence, the change to make and its gain.

    ``ceiling_ms_per_step`` is all time of the cause. ``predicted_step_ms`` is from the replay without the cause, with the
    interval that contains four of five such predictions, or None (``prediction_note`` gives the reason). ``edits`` are the
    replay's changes, so that fixes can be combined. A row of ``evidence`` with ``start_ns`` and ``end_ns`` links to the timeline.
    ``spans`` are start and end (absolute ns) of its events in order. If it is empty, the timeline shows the gaps of the causes in
    ``explains``. ``ends_the_run`` puts a finding before those that only cost time. ``limits_the_step``: a separate timing is as
    long as the run's step. ``fed_every_ms`` is how often the loader's workers deliver a batch, if only that limits the claim.
    """

    rule: str
    severity: Severity
    title: str
    action: Action
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
    spans: tuple[tuple[int, int], ...] = ()
    edits: tuple[Edit, ...] = ()
    ends_the_run: bool = False
    explains: Explains = Explains()
    samples_per_second_times: float | None = None  # The largest gain in samples per second.
    needs_first: tuple[str, ...] = ()  # The rules whose change must come before.
    # The rules among them without whose changes this change cannot be made. The gain includes theirs.
    enabled_by: tuple[str, ...] = ()
    limits_the_step: bool = False
    fed_every_ms: float | None = None
    observed: str = ""  # What only samples show.
    pays_later: bool = False  # A gain only after another change.
    sure_gain_ms: float | None = None  # The gain at the high end of this run's interval.

    @property
    def fix(self) -> str:
        """The change to make, in a sentence."""
        return self.action.sentence

    @property
    def gain_ms(self) -> float:
        """The gain per step, ms: as predicted, or else the upper bound."""
        if self.predicted_speedup is not None and self.predicted_step_ms is not None:
            return self.predicted_step_ms * (self.predicted_speedup - 1)
        return self.ceiling_ms_per_step or 0.0

    @property
    def may_gain_nothing(self) -> bool:
        """Whether a gain is predicted and its interval reaches the current step time."""
        before_ms = (self.predicted_step_ms or 0.0) + self.gain_ms
        return self.claims == "gain" and may_gain_nothing(self.predicted_high_ms, before_ms)

    def accounts_for(self, cause: str | None, start_ns: int, end_ns: int) -> bool:
        """Return whether the finding explains this lost time; with ``spans``, only inside them."""
        is_here = not self.spans or any(start <= end_ns and end >= start_ns for start, end in self.spans)
        return is_here and cause in self.explains.causes

    @property
    def claims(self) -> Claim:
        """The claim: a predicted gain, an upper bound of it, more samples in the same step, or a warning."""
        if self.predicted_step_ms is not None:
            return "gain" if (self.predicted_speedup or 0.0) > NO_GAIN else "caution"
        if self.ceiling_ms_per_step:
            return "ceiling"
        return "throughput" if self.samples_per_second_times else "caution"


@dataclass(frozen=True)
class PlanStep:
    """One fix of the plan: the step time before it (ms, with all earlier fixes) and after it."""

    rule: str
    before_ms: float
    predicted_step_ms: float
    predicted_low_ms: float
    predicted_high_ms: float

    @property
    def prepares(self) -> bool:
        """Whether it gains nothing by itself, but the next fix needs it."""
        return self.predicted_step_ms >= self.before_ms


@dataclass(frozen=True)
class NotChecked:
    """A rule that could not check the run, and the reason."""

    rule: str
    because: str


@dataclass(frozen=True)
class RankResult:
    """One device of one ``trace``.

    ``failed`` are the checks that its recording failed; ``ledger`` is empty if one withdraws the answer. ``exposed_causes``
    divides exposed communication by cause if other ranks show it. ``work`` is per step, ``uneven`` has the waits of few steps.
    """

    recording_id: str
    rank: int | None
    device: int
    device_name: str | None
    gpu: GpuPeaks | None
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
    failed: tuple[FailedCheck, ...] = ()
    uneven: dict[str, UnevenWait] = field(default_factory=dict)

    @cached_property  # Rules read this dozens of times.
    def counted(self) -> pd.DataFrame:
        """The steps that count; callers must not change them."""
        return self.steps[self.steps["counted"]]

    @property
    def host(self) -> str | None:
        """The machine that its trace names."""
        return self.trace.host

    @property
    def device_step_ms(self) -> list[float]:
        """Device durations of the counted steps, ms."""
        return [float(v) / 1e6 for v in self.counted["end_ns"] - self.counted["start_ns"]]


@dataclass(frozen=True)
class RunResult:
    """An analysed run; ``lead`` is the slowest rank's device, None where no trace has GPU work.

    ``plan`` has the fixes in order. ``communication`` is None for one rank, ``host`` if a trace has GPU work. ``troughs`` are waits
    in the lows of the lead's sawtooth. ``below_threshold`` has ms per step by rule, too few for a finding.
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
    failed: tuple[FailedCheck, ...] = ()
    statements: tuple[TelemetryStatement, ...] = ()
    below_threshold: dict[str, float] = field(default_factory=dict)

    @property
    def withdrawn_by(self) -> FailedCheck | None:
        """The failed check that withdraws the answer about the run; None without one."""
        return deciding_check(self.failed)

    @property
    def gpus(self) -> int:
        """The job's number of GPUs, which a trace or a rank summary may state if the run lacks ranks."""
        job_ranks = self.communication.job_ranks if self.communication is not None else None
        return max(job_ranks or 0, len(self.ranks), *(rank.trace.world_size or 0 for rank in self.ranks))
