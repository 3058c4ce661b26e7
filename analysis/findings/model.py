"""What a rule declares, and how a measurement becomes evidence, a judgement and a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sawtooth.analysis.findings.policy import Threshold
from sawtooth.analysis.replay.edits import AsGraph, Edit, FasterHost, WithoutCalls, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import NO_GAIN, Action, CodeChange, Confidence, Explains, Finding, RunResult, Severity
from sawtooth.analysis.units import in_words

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext
    from sawtooth.analysis.findings.judging import Step

# Parts of a recording that can be missing or wrong independently of each other.
Source = Literal[
    "gpu_records",  # Kernels, copies and fills, with their times.
    "launch_links",  # The host call that launched each GPU operation.
    "host_records",  # Operators and runtime calls.
    "steps",  # Where each step begins and ends.
    "shapes",  # Sizes and dtypes of operators' inputs.
    "python_stacks",  # Python calls.
    "allocations",  # Blocks that the allocator gave out and took back, and its peaks.
    "gpu_peaks",  # The GPU's peaks from the hardware table.
    "other_ranks",  # The traces of the job's other ranks.
    "telemetry",  # Samples of the GPU.
    "host_telemetry",  # Samples of the host.
    "loader_timing",  # Measured times and counts of the data loader.
    "compile_log",  # The log of torch.compile.
]
SOURCES: frozenset[Source] = frozenset(get_args(Source))
# Idle time comes from these sources.
TRACE_SOURCES: frozenset[Source] = frozenset({"gpu_records", "launch_links", "host_records", "steps"})

MORE_THAN_LOSS = 1.1  # If the gain is this many times the loss in the title, the title explains the rest of the gain.
TITLE_WITH_REST = "{title}. The change also saves {rest}"
# Words for the rest of the gain, by the kinds of edits in a change. The first matching row counts.
REST_BY_EDIT: tuple[tuple[tuple[type, ...], str], ...] = (
    ((AsGraph,), "other host work between the launches"),
    ((WithoutHostCause, FasterHost), "the same waits in steps outside the profile"),
    ((WithoutWaits, WithoutCalls), "later waits, because the host can then queue kernels ahead of the GPU"),
)
REST_OF_LAUNCHES = "the launches of this work"  # For changes that remove or shorten GPU operations.

Row = dict[str, Any]  # Row of evidence. A row with start_ns and end_ns links to the timeline.
ThresholdFor = Literal["cost", "gain", "larger", "both"]  # What the rule's threshold is compared with; see ``Evidence``.


class PredictedStep(NamedTuple):
    """A step time in ms that a rule predicts itself, with its interval if known."""

    ms: float
    between_ms: tuple[float, float] | None = None


@dataclass(frozen=True)
class Advice:
    """Text for the user: what was found, what to do, how the gain is predicted, and the risk."""

    title: str
    action: Action
    note: str = ""
    risk: str = ""
    changes: tuple[CodeChange, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What a rule measured in the recording, before it is judged. Times are ms per step.

    * ``lost_ms``: the whole loss to the cause. ``cost_ms``: the loss that the change concerns.
    * ``edits``: the change in the replay. ``predicted``: the step time after the change, if the replay cannot predict it.
    * ``threshold_for``: the time that must reach the rule's threshold. "cost" is ``cost_ms``. "gain" is the gain of ``edits``, or the
      cost without a replay. "larger" is the larger of the two. With "both", cost and gain must reach the threshold.
    * ``share``: compared with a threshold that is not a share of the step. Evidence without cost, gain and share is always reported.
    * ``confidence``: the confidence in the cause.
    * ``severity``: used instead of the severity that follows from the gain. ``at_most``: the highest severity. ``severity_by_cost``:
      ``cost_ms`` determines the severity, not the gain. ``is_choice``: the evidence is no fault but a choice, such as eager code.
    * ``withholds_gain``: the plan uses the edits, but the finding alone predicts no gain.
    * ``rows``: evidence rows. ``spans``: time spans (ns) to mark on the timeline.
    * ``ends_the_run``, ``limits_the_step``, ``samples_per_second_times``: fields of the finding.
    * ``reword``: changes the advice after the judgement. ``stated_ms``: the loss in the title, if it is not ``cost_ms``. ``rest``:
      what else the change saves, used instead of the words in REST_BY_EDIT.
    """

    advice: Advice
    lost_ms: float | None = None
    edits: Sequence[Edit] = ()
    cost_ms: float | None = None
    threshold_for: ThresholdFor = "cost"
    share: float | None = None
    predicted: PredictedStep | None = None
    confidence: Confidence = "medium"
    severity: Severity | None = None
    at_most: Severity | None = None
    is_choice: bool = False
    severity_by_cost: bool = False
    withholds_gain: bool = False
    rows: Iterable[Row] = ()
    spans: tuple[tuple[int, int], ...] = ()
    ends_the_run: bool = False
    limits_the_step: bool = False
    samples_per_second_times: float | None = None
    reword: Callable[[Advice, Judgement], Advice] | None = None
    rest: str = ""
    stated_ms: float | None = None


@dataclass(frozen=True)
class Judgement:
    """The severity of evidence, and the predicted step after its change.

    The fields have the same names as in a finding. ``note`` says why there is no prediction.
    """

    severity: Severity
    confidence: Confidence
    ceiling_ms_per_step: float | None = None
    predicted_step_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    predicted_speedup: float | None = None
    fed_every_ms: float | None = None
    note: str = ""
    sure_gain_ms: float | None = None

    @property
    def gain_ms(self) -> float:
        """Gain of the change per step, ms: the predicted gain, else the upper limit."""
        if self.predicted_speedup is not None and self.predicted_step_ms is not None:
            return self.predicted_step_ms * (self.predicted_speedup - 1)
        return self.ceiling_ms_per_step or 0.0

    @property
    def gains(self) -> bool:
        """Whether a gain is predicted."""
        return self.predicted_step_ms is not None and (self.predicted_speedup or 0.0) > NO_GAIN


def finding_from(rule: str, evidence: Evidence, judgement: Judgement, explains: Explains) -> Finding:
    """Return the finding that ``rule`` makes of judged evidence."""
    advice = evidence.advice if evidence.reword is None else evidence.reword(evidence.advice, judgement)
    return Finding(
        rule=rule,
        severity=judgement.severity,
        title=title_with_rest(advice.title, evidence, judgement),
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
        spans=evidence.spans,
        edits=tuple(evidence.edits),
        ends_the_run=evidence.ends_the_run,
        explains=explains,
        samples_per_second_times=evidence.samples_per_second_times,
        limits_the_step=evidence.limits_the_step,
        fed_every_ms=judgement.fed_every_ms,
        sure_gain_ms=judgement.sure_gain_ms,
    )


def title_with_rest(title: str, evidence: Evidence, judgement: Judgement) -> str:
    """Return ``title``. If the gain is clearly larger than the loss in the title, add words for the rest."""
    loss_ms = evidence.cost_ms if evidence.stated_ms is None else evidence.stated_ms
    if loss_ms is None or judgement.gain_ms <= MORE_THAN_LOSS * loss_ms or in_words(loss_ms) not in title:
        return title
    return TITLE_WITH_REST.format(title=title, rest=evidence.rest or _words_for_rest(evidence))


def _words_for_rest(evidence: Evidence) -> str:
    matching = (rest for kinds, rest in REST_BY_EDIT if any(isinstance(edit, kinds) for edit in evidence.edits))
    return next(matching, REST_OF_LAUNCHES)


Condition = Callable[["RuleContext", Finding, Finding], bool]  # Arguments: context, first finding, later finding.


def always(_context: RuleContext, _first: Finding, _later: Finding) -> bool:
    """Apply to all findings."""
    return True


def is_advice(_context: RuleContext, first: Finding, _later: Finding) -> bool:
    """Apply if the first finding is more than information."""
    return first.severity != "info"


@dataclass(frozen=True)
class Relation:
    """Order between a rule's finding and a finding of the rule ``to``.

    If the condition ``applies`` is true, the later finding gets the note ``because``, in which ``{title}`` is the title of the
    first finding. If ``orders`` is true as well, the first finding moves up, directly before the later finding. With ``behind``,
    the later finding moves down instead, directly after the first finding.
    """

    to: str
    because: str = ""
    applies: Condition = is_advice
    orders: Condition = always
    behind: bool = False


@dataclass(frozen=True)
class Rule:
    """A rule: its slug (the name of its file), what it measures, and how its findings relate to others.

    ``requires`` lists the data without which the rule is not checked (keys of ``context.REQUIREMENTS``). ``reads`` lists the
    sources of its findings. A finding's confidence is at most that of its least certain source. ``threshold`` is the smallest
    share that a finding must reach. ``host_check`` checks a run without GPU work.

    This rule's findings come before those of the rules in ``comes_before``. The changes of the rules in ``needs`` must be
    made before this rule's change. ``part_of`` is the rule with the general finding that includes this rule's findings.
    ``same_work_as`` is "smaller findings" for a choice such as compiling, which also solves smaller faults and comes before
    them.
    """

    slug: str
    measure: Callable[[RuleContext], Iterable[Evidence]]
    reads: frozenset[Source]
    explains: Explains = field(default_factory=Explains)
    requires: tuple[str, ...] = ()
    threshold: Threshold | None = None
    judge: Callable[[Evidence, Step, Threshold | None], Judgement | None] | None = None
    host_check: Callable[[RunResult], Iterable[Finding]] | None = None
    comes_before: tuple[Relation, ...] = ()
    needs: tuple[Relation, ...] = ()
    part_of: str | None = None
    same_work_as: Literal["smaller findings"] | None = None


def operations_of(finding: Finding) -> set[int]:
    """Return the GPU operations that the finding's edits name."""
    return {op for edit in finding.edits for op in getattr(edit, "ops", ())}
