"""What is known of an analysed run: its devices and findings. Data only; other modules make it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from string import Template
from typing import Any, Literal

import pandas as pd

from sawtooth.analysis.integrity.failed_check import FailedCheck, deciding
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
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.job import LedgerRow as LedgerRow
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry.of_run import RunTelemetry
from sawtooth.analysis.telemetry.profile_fit import Representativeness
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.telemetry.troughs import Troughs
from sawtooth.ingest.manifest import Manifest

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]
Claim = Literal["gain", "ceiling", "throughput", "caution"]

NO_GAIN = 1.005  # half a percent: a replay reproduces the recorded step no better
NOTHING = 0.99  # of the step: an interval that reaches up to it holds no gain


def may_gain_nothing(high_ms: float | None, before_ms: float | None) -> bool:
    """Tell whether the interval of a prediction, which ends at ``high_ms``, reaches the step as it is: False where either is not known."""
    return high_ms is not None and before_ms is not None and high_ms >= NOTHING * before_ms


@dataclass(frozen=True)
class CodeChange:
    """One way to write the fix. ``framework`` is PyTorch, Lightning or Transformers; ``of_run``: names and sizes in it are the run's own.

    Both texts may hold slots, such as ``$model``; ``usual`` stands in those of which the run's own is not known.
    """

    framework: str
    before: str
    after: str
    of_run: bool = False
    usual: tuple[tuple[str, str], ...] = ()

    def filled(self, **names: str) -> CodeChange:
        """Return the change with ``names`` in its slots, and the usual ones in the others."""
        if not self.usual:
            return self
        before, after = (Template(text).substitute(dict(self.usual) | names) for text in (self.before, self.after))
        return CodeChange(self.framework, before, after, self.of_run or any(slot in names for slot, _ in self.usual))


@dataclass(frozen=True)
class Action:
    """What to change: a verb, its object with the ``$amount`` in it, and ``how`` it is done, which begins with its own punctuation."""

    verb: str
    object: str
    how: str = "."
    amount: float | None = None

    @property
    def short(self) -> str:
        """The change without how it is done: Use 8 loader workers."""
        return f"{self.verb} {Template(self.object).safe_substitute(amount=f'{self.amount or 0:g}')}".rstrip()

    @property
    def sentence(self) -> str:
        """The change and how it is done."""
        return f"{self.short}{self.how}"


Topic = Literal[
    "hidden",  # time that the profiled steps do not show, which what they show cannot be named by
    "late_rank",  # one rank's lateness: the same time again as its own findings, and that it alone loses it
    "host_pace",  # rests on how fast the host is without the profiler, and makes all of its work cheaper
    "choice",  # what somebody decided, and no fault while it costs little
    "cuda_graph",  # launches a step as a CUDA graph
    "captures_graph",  # the profiled steps capture a graph, which the run does once
    "fewer_flops",  # takes work away that counts as the model's, so that MFU does not rise with the speed
    "schedule",  # how a pipeline's microbatches follow each other
    "memory",  # advice about the GPU's memory
    "spare_memory",  # that memory is not used
    "marks_steps",  # how steps come to be marked, without which no advice has a time
]


@dataclass(frozen=True)
class Explains:
    """The lost time that the findings of a rule account for, and what they are about: nobody else need know the rule by its name.

    ``causes`` are the ledger's; where they are no more than the mechanism, ``called`` is what the time is called in a sentence.
    ``sets`` are the choices of a run's set-up that the advice makes (``compare.changed.traits``), with the value where only that is meant: "dtype TF32".
    """

    causes: tuple[str, ...] = ()
    called: str | None = None
    topics: frozenset[Topic] = frozenset()
    sets: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool:
        """Whether torch.compile is the advice or a way to it: a CUDA graph is one of its modes."""
        return "cuda_graph" in self.topics or "compile" in self.sets


@dataclass(frozen=True)
class Finding:
    """What a rule found: a title in plain words with its number, what proves it, what to change and what that brings.

    ``ceiling_ms_per_step`` is all that the cause owns; ``predicted_step_ms`` comes from the replay with the cause removed, None where the
    gain cannot be predicted (``prediction_note`` says why), with the interval that holds four of five such predictions. ``evidence`` rows are plain data; a row with ``start_ns`` and ``end_ns`` links
    to the timeline. ``places`` are start and end (absolute ns) of the events that it speaks of, in order of time; without any, its places are the gaps of
    the causes that it explains. ``edits`` are the replay's changes, so that several fixes can be combined. ``ends_the_run`` puts a finding before
    those that only cost time. ``explains`` is its rule's. ``needs_first`` are the rules whose change is to be made before this one's.
    ``sets_pace``: what it names takes as long as the run's step by a timing of its own, whatever the profiled steps show. ``fed_every_ms`` is how often the loader's workers
    give a batch, at the best where the finding has a ceiling, if that and nothing else bounds what it claims. ``samples_per_second_times``, at most, is what a change brings that leaves the step as long.
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
    places: tuple[tuple[int, int], ...] = ()
    edits: tuple[Edit, ...] = ()
    ends_the_run: bool = False
    explains: Explains = Explains()
    samples_per_second_times: float | None = None
    needs_first: tuple[str, ...] = ()
    sets_pace: bool = False
    fed_every_ms: float | None = None

    @property
    def fix(self) -> str:
        """What to change, in a sentence."""
        return self.action.sentence

    @property
    def gain_ms(self) -> float:
        """What the change brings a step: as predicted, else at most."""
        if self.predicted_speedup is not None and self.predicted_step_ms is not None:
            return self.predicted_step_ms * (self.predicted_speedup - 1)
        return self.ceiling_ms_per_step or 0.0

    @property
    def may_gain_nothing(self) -> bool:
        """Whether a gain is predicted whose interval reaches the step as it is."""
        return self.claims == "gain" and may_gain_nothing(
            self.predicted_high_ms, (self.predicted_step_ms or 0.0) + self.gain_ms
        )

    def accounts_for(self, cause: str | None, start_ns: int, end_ns: int) -> bool:
        """Tell whether time lost to ``cause`` there is what the finding speaks of: of a finding with places, where it touches one of them."""
        if cause not in self.explains.causes:
            return False
        return not self.places or any(start <= end_ns and end >= start_ns for start, end in self.places)

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
    """One fix of the plan: a step's time before it, with the fixes before it made, and after it with its interval (ms). Of one that only makes the next one possible both are the same."""

    rule: str
    before_ms: float
    predicted_step_ms: float
    predicted_low_ms: float
    predicted_high_ms: float

    @property
    def prepares(self) -> bool:
        """Whether it brings nothing by itself, and has to be done before the next fix."""
        return self.predicted_step_ms >= self.before_ms


@dataclass(frozen=True)
class NotChecked:
    """A rule that could not speak, and why."""

    rule: str
    because: str


@dataclass(frozen=True)
class RankResult:
    """One device of one ``trace``. ``steps`` has the derived table's columns; ``categories`` category, ns, launches, share.

    ``failed`` are the checks that its recording failed; where one of them decides, ``ledger`` is empty.
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
    failed: tuple[FailedCheck, ...] = ()

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
    sawtooth waits for; ``compile_log`` what torch.compile's own log says; ``failed`` the checks that its recordings failed, the lead's first.
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

    @property
    def withdrawn_by(self) -> FailedCheck | None:
        """The failed check that takes the answer about the run away; None where none does."""
        return deciding(self.failed)

    @property
    def gpus(self) -> int:
        """How many GPUs the job has: those of the run, or as many as a trace or a summary of the ranks names where not all are among the run's."""
        whole = self.communication.job_ranks if self.communication is not None else None
        return max(whole or 0, len(self.ranks), *(rank.trace.world_size or 0 for rank in self.ranks))
