"""What a rule declares of itself, and the three steps from a recording to a finding: measure, judge, advise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sawtooth.analysis.findings.policy import Bar
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.run.model import NO_GAIN, Action, CodeChange, Confidence, Explains, Finding, RunResult, Severity

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext
    from sawtooth.analysis.findings.judging import Step

# What was recorded, by the parts that can be missing or wrong by themselves.
Source = Literal[
    "gpu_records",  # kernels, copies and fills with their times
    "launch_links",  # which call of the host launched which of them
    "host_records",  # operators and runtime calls
    "steps",  # where each step begins and ends
    "shapes",  # sizes and dtypes of operators' inputs
    "python_stacks",  # Python calls
    "allocations",  # what the allocator gave out and took back, and peaks of it
    "gpu_peaks",  # what the hardware table says of this GPU; what is read is the work that a kernel did in its time
    "other_ranks",  # the traces of the job's other ranks
    "telemetry",  # samples of the GPU
    "host_telemetry",  # samples of the host
    "loader_timing",  # what was timed and counted of the data loader
    "compile_log",  # the log of torch.compile
]
SOURCES: frozenset[Source] = frozenset(get_args(Source))
OF_TRACE: frozenset[Source] = frozenset({"gpu_records", "launch_links", "host_records", "steps"})  # what idle time is told from

Row = dict[str, Any]  # of evidence: plain data; with start_ns and end_ns it links to the timeline
WeighedBy = Literal["cost", "gain", "larger", "both"]  # what the rule's bar is held against; see ``Evidence``


class Predicted(NamedTuple):
    """A step that a rule predicts itself, in ms, with its interval where one is known."""

    ms: float
    between_ms: tuple[float, float] | None = None


@dataclass(frozen=True)
class Advice:
    """What a person reads: what was found, what to do, how that is predicted, and what it risks."""

    title: str
    action: Action
    note: str = ""
    risk: str = ""
    changes: tuple[CodeChange, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a rule measured in the recording, before anybody says whether that is much.

    The bar of the rule is held against ``cost_ms``, or against the gain of ``edits``: ``weighed_by`` "gain" falls back on the cost where nothing can be
    replayed, "larger" takes the larger of both, "both" needs both. ``share`` stands for them where the bar is of something else than the step.
    Without any of these the evidence is worth naming as it is.

    ``lost_ms`` is all that the cause owns, in ms a step. ``predicted`` is the step after the change where the replay of ``edits`` does not say it.
    ``confidence`` is that in the cause. ``severity`` is fixed where it does not depend on the gain; ``at_most`` bounds it; ``is_choice``: eager code, say, is no
    fault; ``severity_by_cost`` judges ``cost_ms`` in place of the gain. ``withholds_gain`` keeps the edits for the plan, and claims no gain alone.
    ``reword`` returns the advice in the light of the judgement, where its words depend on that.
    """

    advice: Advice
    lost_ms: float | None = None
    edits: Sequence[Edit] = ()
    cost_ms: float | None = None
    weighed_by: WeighedBy = "cost"
    share: float | None = None
    predicted: Predicted | None = None
    confidence: Confidence = "medium"
    severity: Severity | None = None
    at_most: Severity | None = None
    is_choice: bool = False
    severity_by_cost: bool = False
    withholds_gain: bool = False
    rows: Iterable[Row] = ()
    places: tuple[tuple[int, int], ...] = ()
    ends_the_run: bool = False
    sets_pace: bool = False
    samples_per_second_times: float | None = None
    reword: Callable[[Advice, Judgement], Advice] | None = None


@dataclass(frozen=True)
class Judgement:
    """How severe evidence is for a step, and what the change brings it; the fields are those of a finding. ``note`` says why nothing is predicted."""

    severity: Severity
    confidence: Confidence
    ceiling_ms_per_step: float | None = None
    predicted_step_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    predicted_speedup: float | None = None
    fed_every_ms: float | None = None
    note: str = ""

    @property
    def gain_ms(self) -> float:
        """What the change brings a step: as predicted, else at most."""
        if self.predicted_speedup is not None and self.predicted_step_ms is not None:
            return self.predicted_step_ms * (self.predicted_speedup - 1)
        return self.ceiling_ms_per_step or 0.0

    @property
    def gains(self) -> bool:
        """Whether a gain is predicted."""
        return self.predicted_step_ms is not None and (self.predicted_speedup or 0.0) > NO_GAIN


def advise(rule: str, evidence: Evidence, judgement: Judgement, explains: Explains) -> Finding:
    """Return the finding of ``rule``: what was measured, how it was judged, and what to do about it."""
    advice = evidence.advice if evidence.reword is None else evidence.reword(evidence.advice, judgement)
    return Finding(
        rule=rule,
        severity=judgement.severity,
        title=advice.title,
        action=advice.action,
        confidence=judgement.confidence,
        ceiling_ms_per_step=judgement.ceiling_ms_per_step,
        predicted_step_ms=judgement.predicted_step_ms,
        predicted_low_ms=judgement.predicted_low_ms,
        predicted_high_ms=judgement.predicted_high_ms,
        predicted_speedup=judgement.predicted_speedup,
        prediction_note=" ".join(filter(None, (advice.note, judgement.note))),
        risk=advice.risk,
        changes=advice.changes,
        evidence=tuple(evidence.rows),
        places=evidence.places,
        edits=tuple(evidence.edits),
        ends_the_run=evidence.ends_the_run,
        explains=explains,
        samples_per_second_times=evidence.samples_per_second_times,
        sets_pace=evidence.sets_pace,
        fed_every_ms=judgement.fed_every_ms,
    )


Condition = Callable[["RuleContext", Finding, Finding], bool]  # of the finding that comes first, and the one behind it


def always(_context: RuleContext, _first: Finding, _then: Finding) -> bool:
    """Hold for all findings."""
    return True


def is_advice(_context: RuleContext, first: Finding, _then: Finding) -> bool:
    """Hold where the first finding is more than information."""
    return first.severity != "info"


@dataclass(frozen=True)
class Relation:
    """How a rule's finding stands to that of the rule ``to``.

    Where it ``applies``, the later of the two says ``because``, in which ``{title}`` is that of the first. Where it ``orders`` as well, the first goes up
    to just before the later one; with ``behind`` the later one goes down to just behind the first.
    """

    to: str
    because: str = ""
    applies: Condition = is_advice
    orders: Condition = always
    behind: bool = False


@dataclass(frozen=True)
class Rule:
    """A rule: its slug (the name of its file), what it measures, and how its findings stand to others'.

    ``requires`` is the data without which it is not checked (keys of ``context.REQUIREMENTS``), ``reads`` the evidence that its findings rest on: they are worth no more
    than the least certain of it. ``bar`` is what its findings must be about at least. ``of_the_host`` checks a run without GPU work.

    ``comes_before`` names rules whose findings stand behind this one's, ``needs`` those whose change has to be made before this one's.
    ``part_of`` is the rule whose general finding these are a part of. ``same_work_as`` "smaller findings": a choice, such as compiling, that stands before the lesser faults
    which it mends on the way.
    """

    slug: str
    measure: Callable[[RuleContext], Iterable[Evidence]]
    reads: frozenset[Source]
    explains: Explains = field(default_factory=Explains)
    requires: tuple[str, ...] = ()
    bar: Bar | None = None
    judge: Callable[[Evidence, Step, Bar | None], Judgement | None] | None = None
    of_the_host: Callable[[RunResult], Iterable[Finding]] | None = None
    comes_before: tuple[Relation, ...] = ()
    needs: tuple[Relation, ...] = ()
    part_of: str | None = None
    same_work_as: Literal["smaller findings"] | None = None
