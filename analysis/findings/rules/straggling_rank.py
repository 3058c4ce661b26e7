"""Some ranks, or the ranks of a host, take longer than the others, which wait for them.

What it checks
    A joint replay of all ranks without the profiler. A rank is late if its own work takes longer than that of its peers, by more
    than the estimates' error. It must be late in most counted steps, or by much in a few. Also, the job must become faster if the
    rank is as fast as its peers.
Why it costs time
    Ranks step together, so all ranks wait for the late rank. A rank is late because of its data, host, work or GPU.
What to do
    Remove the reason: use a faster loader, equal batches, or a separate GPU. Otherwise look for work that the others do not have.
When it is wrong
    Few steps were profiled, and one of them was unusual. A delay that disappears without the profiler is only an info
    finding.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import CRITICAL_SHARE, SURE_CRITICAL_SHARE, Step, judge
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Judgement, PredictedStep, Relation, Row, Rule
from sawtooth.analysis.findings.policy import Threshold
from sawtooth.analysis.findings.straggler_limits import (
    MIN_LEADER_SHARE,
    explained_by_pauses,
    function_sentence,
    is_run_step_known,
    is_visibly_late,
    wait_difference_ms,
    waited_for_ms,
)
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.heatmap import stalls_of
from sawtooth.analysis.ranks.job_step import own_works
from sawtooth.analysis.ranks.stragglers.gain_interval import step_interval
from sawtooth.analysis.ranks.stragglers.marked_stalls import share_in_words
from sawtooth.analysis.ranks.stragglers.sentences import NAMED_RANKS, straggler_cause, straggler_name
from sawtooth.analysis.run.job import Communication, RankWaits, Split, Straggler
from sawtooth.analysis.run.model import Action, CodeChange, Explains, RankResult
from sawtooth.analysis.units import in_words

MIN_SKEW_SHARE = 0.03  # Share of a step. A smaller delay is not reported.
MIN_EXPLAINED_SHARE = 0.5  # Of the late ranks' delay. A cause that explains a smaller share is not named.
MAX_ADVICE = 3  # Late ranks with their own advice.
MAX_ROWS = 16  # Rows of evidence. A job may have thousands of ranks.
SLOW_LOADER = CodeChange(
    "PyTorch",
    "DataLoader(dataset, …)",
    "DataLoader(dataset, …, num_workers=8, persistent_workers=True)",
)
UNEVEN_LENGTHS = CodeChange(
    "PyTorch",
    "# batches of very different lengths on each rank",
    "# sort or bucket by length, so that every rank gets the same work",
)
EXTRA_WORK = CodeChange("PyTorch", "if rank == 1: extra_work()", "extra_work()   # on every rank, or outside the loop")
CHANGES_BY_REASON: dict[str | None, tuple[CodeChange, ...]] = {
    None: (EXTRA_WORK, UNEVEN_LENGTHS),
    "data_wait": (SLOW_LOADER,),
    "python_host": (EXTRA_WORK,),
    "work": (UNEVEN_LENGTHS,),
    "turns": (),
}
UPPER_LIMIT = "This gain is an upper limit: in the replay, slow hosts hide the difference between the ranks' kernels."
TELEMETRY_SHOWS = "Telemetry (`sawtooth sample`) during the run would show the real difference."
WORK_SPREAD = (
    "Predicted by a replay of all ranks together, without the profiler. Work of a different batch size is spread evenly over the ranks. "
    "Kernels that only the late ranks run are removed."
)
AS_RECORDED = (
    "Predicted from the recorded collectives, with the late ranks as early as their peers. The profiler's cost is not removed."
)
JOINT_REPLAY = (
    "Predicted by a replay of all ranks together, without the profiler and with the late ranks as fast as their peers."
)
SPREAD_EVENLY = "Work of a different batch size is spread evenly over the ranks."
CHANGE_NOTHING = Action("Change", "nothing", ": the profiler slows one host more than another.")
CHANGE_NOTHING_YET = Action("Change", "nothing yet", ": the profiler may slow one host more than another.")
WITHIN_ERROR = "Not predicted: the difference between the ranks is within the error of the profiler's estimated cost."
WAITS_DIFFER = (
    "Not predicted: in a joint replay without the profiler, one rank still waits {difference} per step longer than another. The profiler's "
    "estimated cost may cause this difference."
)
NOT_TOGETHER = "Not predicted: not all ranks could be replayed together, so the profiler's cost on each is unknown."


@dataclass(frozen=True)
class StragglerEvidence(Evidence):
    """Evidence on late ranks: their extra ms per step, and the share of a step that others wait."""

    own_ms: float = 0.0
    waited_share: float = 0.0


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if ranks delay the job (see ``stragglers.detection``), or only under the profiler."""
    communication = context.run.communication
    if communication is None or context.step_ms is None:
        return
    waits = [
        {"rank": w.rank, "wait_ms_per_profiled_step": w.wait_ms, "last_in_share_of_collectives": w.last_share}
        for w in sorted(communication.ranks, key=lambda w: -w.late_ms)[:MAX_ROWS]
    ]
    gaps = context.gap_evidence("unattributed", "comm_wait", "comm_transfer")
    rows: list[Row] = [*waits, *(gap for gap in gaps if gap["end_ns"] > gap["start_ns"])]
    job_step_ms = communication.run_speed_step_ms or communication.step_ms or context.step_ms
    if communication.stragglers and job_step_ms:
        straggler = communication.stragglers[0]
        if not explained_by_pauses(context, straggler):  # Otherwise, the rule periodic-stalls reports the delay.
            gain_ms = context.step_ms * straggler.gain_ms / job_step_ms
            yield _evidence_of_straggler(context, communication, straggler, gain_ms, rows)
    elif communication.split is not None:
        yield _evidence_of_split(context, communication.split, rows)
    elif (skewed := _skewed_rank(communication, context.step_ms)) is not None:
        yield from _evidence_of_skew(context, communication, skewed, rows)


def _evidence_of_straggler(
    context: RuleContext, communication: Communication, straggler: Straggler, gain_ms: float, rows: list[Row]
) -> Evidence:
    name, reason = straggler_name(straggler, context.run.ranks), straggler_cause(straggler)
    delay = f"{'take' if straggler.kind == 'set' else 'takes'} {in_words(straggler.own_ms)} longer per step than the others"
    if straggler.stall_share:
        stall, share = in_words(straggler.own_ms / straggler.stall_share), share_in_words(straggler.stall_share)
        delay = f"takes {stall} longer than the others in {share}, {in_words(straggler.own_ms)} per step on average"
    elif (stalls := stalls_of(straggler, context.run.ranks, communication)) is not None:
        delay = f"stalls about {in_words(stalls.mean_ms)} in {stalls}"
    after_ms = (context.step_ms or 0.0) - gain_ms
    return StragglerEvidence(
        Advice(
            f"{name[0].upper()}{name[1:]} {delay}{f', because of {reason}' if reason else ''}",
            _action(communication.stragglers, context.run.ranks),
            note=_note(context, straggler) + function_sentence(context, straggler),
            risk="Moving work between ranks changes which samples each rank sees.",
            changes=CHANGES_BY_REASON.get(straggler.reason, CHANGES_BY_REASON[None]),
        ),
        lost_ms=gain_ms,
        confidence="medium" if straggler.as_recorded or straggler.at_most else "high",
        severity="warning" if straggler.at_most else None,
        rows=rows,
        predicted=None if straggler.at_most else _prediction(context, communication, straggler, after_ms),
        own_ms=straggler.own_ms,
        waited_share=_waited_share(context, communication, straggler),
    )


def _evidence_of_skew(
    context: RuleContext, communication: Communication, skewed: RankWaits, rows: list[Row]
) -> Iterator[Evidence]:
    """Yield the evidence of a rank that is late in the profile, but perhaps not in the run."""
    name = f"rank {skewed.rank}" if skewed.rank is not None else f"device {skewed.device}"
    difference_ms = wait_difference_ms(communication)
    if difference_ms is None:
        note, action = NOT_TOGETHER, _find_the_difference(name)
    elif is_run_step_known(context):
        return  # The comparison at the run's own step found no late rank.
    elif context.share(difference_ms) < MIN_SKEW_SHARE:
        note, action = WITHIN_ERROR, CHANGE_NOTHING
    else:
        note, action = WAITS_DIFFER.format(difference=in_words(difference_ms)), CHANGE_NOTHING_YET
    if not is_run_step_known(context):
        action = replace(action, how=f"{action.how} `sawtooth sample` during the run would show whether any wait remains.")
    unprofiled = "all ranks take about the same time" if note == WITHIN_ERROR else "the difference is not known"
    title = f"Under the profiler, {name} is {in_words(skewed.late_ms)} behind the others; without it, {unprofiled}"
    yield Evidence(Advice(title, action, note=note), severity="info", rows=rows)


def _find_the_difference(name: str) -> Action:
    return Action("Look", f"at what {name} {'do' if name.startswith('ranks') else 'does'} that the others do not")


def _note(context: RuleContext, straggler: Straggler) -> str:
    if straggler.at_most:
        return UPPER_LIMIT if is_run_step_known(context) else f"{UPPER_LIMIT} {TELEMETRY_SHOWS}"
    if straggler.reason == "work":
        return WORK_SPREAD if not straggler.as_recorded else f"{AS_RECORDED} {SPREAD_EVENLY}"
    return AS_RECORDED if straggler.as_recorded else JOINT_REPLAY


def _prediction(context: RuleContext, communication: Communication, straggler: Straggler, after_ms: float) -> PredictedStep:
    """Return the step time after the change, with the error of replayed gains and the spread of such runs."""
    works_ms = [work.occupied_ns / 1e6 for work in own_works(context.run.ranks, communication)]
    if straggler.reason == "work" and works_ms:  # The change spreads the work over the ranks.
        works_ms = [fmean(works_ms)]
    elif len(works_ms) == len(context.run.ranks):  # The work of the late ranks changes, so only the others count.
        works_ms = [ms for position, ms in enumerate(works_ms) if position not in straggler.positions] or works_ms
    return PredictedStep(after_ms, step_interval(context.step_ms or after_ms, after_ms, works_ms))


def _evidence_of_split(context: RuleContext, split: Split, rows: list[Row]) -> Evidence:
    """Return the evidence that most ranks are late together, with a cause if their traces show one."""
    ranks = context.run.ranks
    late, early = straggler_name(split.late, ranks), straggler_name(split.early, ranks)
    late_ms, early_ms = (_lost_ms([ranks[p] for p in side.positions]) for side in (split.late, split.early))
    extra_ms = {cause: ms - early_ms.get(cause, 0.0) for cause, ms in late_ms.items()} if early_ms else {}
    cause = max(extra_ms, key=lambda cause: extra_ms[cause], default=None)
    cause_note = ""
    if cause is not None and extra_ms[cause] >= MIN_EXPLAINED_SHARE * split.behind_ms:
        cause_in_words = (CAUSE_OF[cause].late_rank or cause).replace("its ", "their ")
        cause_note = f" The traces of the late ranks show {in_words(extra_ms[cause])} more per step for {cause_in_words}."
    return Evidence(
        Advice(
            f"In the recording, {late} arrive {in_words(split.behind_ms)} per step after {early}, which wait for them",
            Action("Compare", f"{late} with {early}", f": their hosts, their data and their share of the work.{cause_note}"),
            note="Not predicted: with so many late ranks, the recording does not show whether the late ranks lose time or the others have less to do.",
        ),
        severity="info",
        rows=rows,
    )


def _lost_ms(ranks: Sequence[RankResult]) -> dict[str, float]:
    """Return the median loss of ``ranks`` by cause, ms per step, without causes that profiling affects."""
    causes = [cause for cause, cause_facts in CAUSE_OF.items() if cause_facts.late_rank and not cause_facts.slowed]
    return {
        cause: float(median([sum(row.ms_per_step or 0.0 for row in rank.ledger if row.cause == cause) for rank in ranks]))
        for cause in causes
        if ranks
    }


def _action(stragglers: Sequence[Straggler], ranks: Sequence[RankResult]) -> Action:
    """Return the action. If several ranks are late for separate reasons, it includes the action for each."""
    first = stragglers[0]
    has_several_reasons = first.kind == "set" and first.reason is None and first.kernel_ratio is None
    single_ranks = [straggler for straggler in stragglers if straggler.kind != "set" and straggler.reason is not None]
    advised = (single_ranks[:MAX_ADVICE] if has_several_reasons else []) or [first]
    action, *other_actions = [_action_of(straggler, ranks) for straggler in advised]
    how = " ".join([action.how, *(other.sentence for other in other_actions)])
    if not first.positions:
        return replace(action, how=how)
    traces = "its trace" if len(first.ranks) == 1 else "their traces" if len(first.positions) > 1 else "the trace of one"
    return replace(action, how=f"{how} The timeline shows {traces}.")


def _action_of(straggler: Straggler, ranks: Sequence[RankResult]) -> Action:
    is_named = len(straggler.ranks) <= NAMED_RANKS or straggler.kind == "host"
    name = straggler_name(straggler, ranks) if is_named else "the late ranks"
    their = "its" if len(straggler.ranks) == 1 else "their"
    match straggler.reason:
        case "data_wait":
            return Action("Feed", f"{name} as fast as the others", f": check {their} storage, workers and decoding first.")
        case "python_host":
            return Action("Remove", f"extra Python from {name}", f": check {their} code in the step first, then {their} CPU.")
        case "work":
            return Action("Give", f"{name} as much work as the others", f": check the length of {their} batches first.")
        case "turns":
            return Action("Free", f"the GPU of {name} from other processes", ": nvidia-smi lists them.")
        case _:
            return _find_the_difference(name)


def _waited_share(context: RuleContext, communication: Communication, straggler: Straggler) -> float:
    """Return the share of a profiled step that the other ranks wait for ``straggler``."""
    profiled_ms = context.rank.best.mean_ms
    return waited_for_ms(communication, straggler) / profiled_ms if profiled_ms else 0.0


def judge_straggler(evidence: Evidence, step: Step, threshold: Threshold | None) -> Judgement | None:
    """Judge the evidence; a smaller gain is critical if the recording shows that the others wait.

    The gain is a lower bound, because the errors of the replays are subtracted from it.
    """
    if isinstance(evidence, StragglerEvidence) and evidence.severity is None:
        is_visible = min(evidence.waited_share, step.share(evidence.own_ms)) >= CRITICAL_SHARE
        if is_visible and step.share(evidence.lost_ms or 0.0) >= SURE_CRITICAL_SHARE:
            evidence = replace(evidence, severity="critical")
    return judge(evidence, step, threshold)


def _skewed_rank(communication: Communication, step_ms: float) -> RankWaits | None:
    """Return the rank that causes most waits in the profile; None without such a rank, and in a pipeline."""
    if communication.pipeline:
        return None
    total_ms = sum(waits.late_ms for waits in communication.ranks)
    latest = max(communication.ranks, key=lambda waits: waits.late_ms, default=None)
    if latest is None or latest.late_ms <= MIN_LEADER_SHARE * total_ms or latest.late_ms < MIN_SKEW_SHARE * step_ms:
        return None
    return latest


RULE = Rule(
    "straggling-rank",
    measure,
    reads=TRACE_SOURCES | {"other_ranks"},
    explains=Explains(topics=frozenset({"late_rank"})),
    judge=judge_straggler,
    comes_before=tuple(
        Relation(rule, applies=is_visibly_late, behind=True) for rule in ("launch-bound", "python-between-operators")
    ),
    requires=("steps", "ranks"),
)
