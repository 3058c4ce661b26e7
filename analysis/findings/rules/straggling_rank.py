"""One or more ranks, or a host, take longer than the others, which wait for them.

What it checks
    A joint replay of all ranks without the profiler. A rank is late if it takes longer by itself than its peers, in most
    counted steps or much in a few, and by more than the estimates' error. Also, the job must gain if the rank is as fast as the others.
Why it costs time
    Ranks step together, so all ranks pay for the one that is late (because of its data, host, work or GPU).
What to do
    Remove the reason: a loader that is fast enough, equal batches, or a separate GPU. Otherwise look for work that the others
    do not have.
When it is wrong
    Few steps were profiled, and one of them was unusual. A delay that disappears without the profiler is only an info
    finding.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import CRITICAL_SHARE, SURE_CRITICAL_SHARE, Step, judge
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Judgement, Predicted, Relation, Row, Rule
from sawtooth.analysis.findings.policy import Threshold
from sawtooth.analysis.findings.straggler_limits import (
    LEADS,
    explained_by_pauses,
    is_seen_to_be_late,
    knows_run,
    lines_of,
    waited_for_ms,
    waits_apart_ms,
)
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.heatmap import stalls_of
from sawtooth.analysis.ranks.job_step import own_works
from sawtooth.analysis.ranks.stragglers.gain_interval import step_interval
from sawtooth.analysis.ranks.stragglers.marked_stalls import share_in_words
from sawtooth.analysis.ranks.stragglers.sentences import NAMED_RANKS, who, why
from sawtooth.analysis.run.job import Communication, RankWaits, Split, Straggler
from sawtooth.analysis.run.model import Action, CodeChange, Explains, RankResult
from sawtooth.analysis.units import in_words

SKEW_SHARE = 0.03  # Share of a step. A smaller delay is not reported.
EXPLAINED = 0.5  # Share of the late ranks' delay that their traces show and the other ranks' traces do not.
MAX_ADVICE = 3  # At most this many late ranks have their own advice.
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

# Code to look at, by the reason of the delay.
CHANGES_OF: dict[str | None, tuple[CodeChange, ...]] = {
    None: (EXTRA_WORK, UNEVEN_LENGTHS),
    "data_wait": (SLOW_LOADER,),
    "python_host": (EXTRA_WORK,),
    "work": (UNEVEN_LENGTHS,),
    "turns": (),
}

PERHAPS = "This gain is an upper limit: in the replay, slow hosts hide the difference between the ranks' kernels."
TELEMETRY_SHOWS = "Telemetry (`sawtooth sample`) during the run would show it."
SHARED = (
    "Predicted by a replay of all ranks together, without the profiler. Work of a different batch size is spread evenly over the ranks. "
    "Kernels that only the late ranks run are removed."
)
AS_RECORDED = (
    "Predicted from the recorded collectives, with the late ranks as early as their peers. The profiler's cost is not removed."
)
SHARED_OUT = "Work of a different batch size is spread evenly over the ranks."
SKEW = Action("Change", "nothing", ": the profiler slows one host more than another.")
PERHAPS_SKEW = Action("Change", "nothing yet", ": the profiler slows one host more than another.")
WITHIN_ERROR = "Not predicted: the difference between the ranks is within the error of the profiler's estimated cost."
WAITS_DIFFER = (
    "Not predicted: in a joint replay without the profiler, one rank still waits {apart} per step longer than another. This may be an error of the "
    "profiler's estimated cost."
)
NOT_TOGETHER = "Not predicted: not all ranks could be replayed together, so the profiler's cost on each is unknown."


@dataclass(frozen=True)
class StragglerEvidence(Evidence):
    """Evidence on late ranks: their extra time, ms per step, and the share that others wait for them."""

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
    rows = [r for r in context.gap_evidence("unattributed", "comm_wait", "comm_transfer") if r["end_ns"] - r["start_ns"] > 0]
    if communication.stragglers and (whole := communication.paced_ms or communication.step_ms or context.step_ms):
        straggler = communication.stragglers[0]
        if explained_by_pauses(context, straggler):
            return  # The rule periodic-stalls reports the same time.
        name, reason = who(straggler, context.run.ranks), why(straggler)
        takes = "take" if straggler.kind == "set" else "takes"
        much = f"{takes} {in_words(straggler.own_ms)} per step longer than the others"
        if straggler.stall_share:
            more, share = in_words(straggler.own_ms / straggler.stall_share), share_in_words(straggler.stall_share)
            much = f"takes {more} longer than the others in {share}, {in_words(straggler.own_ms)} per step on average"
        elif (stalled := stalls_of(straggler, context.run.ranks, communication)) is not None:
            much = f"stalls about {in_words(stalled.mean_ms)} in {stalled}"
        gain = context.step_ms * straggler.gain_ms / whole
        yield StragglerEvidence(
            Advice(
                f"{name[0].upper()}{name[1:]} {much}{f': {reason}' if reason else ''}",
                _action(communication.stragglers, context.run.ranks),
                note=_note(context, straggler) + lines_of(context, straggler),
                risk="Moving work between ranks changes which samples each of them sees.",
                changes=CHANGES_OF.get(straggler.reason, CHANGES_OF[None]),
            ),
            lost_ms=gain,
            confidence="medium" if straggler.as_recorded or straggler.at_most else "high",
            severity="warning" if straggler.at_most else None,
            rows=[*waits, *rows],
            predicted=None if straggler.at_most else _prediction(context, communication, straggler, context.step_ms - gain),
            own_ms=straggler.own_ms,
            waited_share=_waited_share(context, communication, straggler),
        )
    elif communication.split is not None:
        yield _of_split(context, communication.split, [*waits, *rows])
    elif (skewed := _skewed_rank(communication, context.step_ms)) is not None:
        name = f"Rank {skewed.rank}" if skewed.rank is not None else f"Device {skewed.device}"
        apart_ms = waits_apart_ms(communication)
        if apart_ms is not None and knows_run(context):
            return  # The comparison at the run's own step found no late rank.
        similar = apart_ms is not None and apart_ms < SKEW_SHARE * context.step_ms
        yield Evidence(
            Advice(
                f"Under the profiler, {name.lower()} is {in_words(skewed.late_ms)} behind the others; "
                + ("without it, all ranks take about the same time" if similar else "without it, the difference is not known"),
                _advice_on_skew(context, name.lower(), apart_ms, similar),
                note=NOT_TOGETHER
                if apart_ms is None
                else WITHIN_ERROR
                if similar
                else WAITS_DIFFER.format(apart=in_words(apart_ms)),
            ),
            severity="info",
            rows=[*waits, *rows],
        )


def _advice_on_skew(context: RuleContext, name: str, apart_ms: float | None, similar: bool) -> Action:
    """Return the advice on a rank that is late only in the profiled steps."""
    action = _find_the_difference(name) if apart_ms is None else SKEW if similar else PERHAPS_SKEW
    more = "" if knows_run(context) else " `sawtooth sample` during the run would show whether any wait remains."
    return replace(action, how=f"{action.how}{more}")


def _find_the_difference(name: str) -> Action:
    return Action("Look", f"at what {name} {'do' if name.startswith('ranks') else 'does'} that the others do not")


def _note(context: RuleContext, straggler: Straggler) -> str:
    if straggler.at_most:
        return PERHAPS if knows_run(context) else f"{PERHAPS} {TELEMETRY_SHOWS}"
    if straggler.reason == "work":
        return SHARED if not straggler.as_recorded else f"{AS_RECORDED} {SHARED_OUT}"
    return (
        AS_RECORDED
        if straggler.as_recorded
        else "Predicted by a replay of all ranks together, without the profiler and with the late ranks as fast as their peers."
    )


def _prediction(context: RuleContext, communication: Communication, straggler: Straggler, after_ms: float) -> Predicted:
    """Return the step after the change, with the error of replayed gains and the spread of such runs."""
    step_ms = context.step_ms or after_ms
    # The others' own work, because the late rank's work is about to change.
    works_ms = [work.occupied_ns / 1e6 for work in own_works(context.run.ranks, communication)]
    all_known = len(works_ms) == len(context.run.ranks)
    works = [ms for position, ms in enumerate(works_ms) if all_known and position not in straggler.positions] or works_ms
    return Predicted(after_ms, step_interval(step_ms, after_ms, works))


def _of_split(context: RuleContext, split: Split, evidence: list[Row]) -> Evidence:
    """Return the evidence that most ranks are late together, with a cause if their traces show one."""
    ranks = context.run.ranks
    late, early = who(split.late, ranks), who(split.early, ranks)
    of_late, of_early = (_lost_ms([ranks[p] for p in side.positions]) for side in (split.late, split.early))
    over = {cause: ms - of_early.get(cause, 0.0) for cause, ms in of_late.items()} if of_early else {}
    cause = max(over, key=lambda key: over[key], default=None)
    is_explained = cause is not None and over[cause] >= EXPLAINED * split.behind_ms
    more = (
        f" The traces of the late ranks show {in_words(over[cause])} more per step for {(CAUSE_OF[cause].late_rank or cause).replace('its ', 'their ')}."
        if cause and is_explained
        else ""
    )
    return Evidence(
        Advice(
            f"In the recording, {late} arrive {in_words(split.behind_ms)} per step after {early}, which wait for them",
            Action("Compare", f"{late} with {early}", f": their hosts, their data and their share of the work.{more}"),
            note="Not predicted: with so many late ranks, the recording does not show whether they lose time or the others have less to do.",
        ),
        severity="info",
        rows=evidence,
    )


def _lost_ms(ranks: Sequence[RankResult]) -> dict[str, float]:
    """Return the median rank's loss by cause, ms per step, for causes that recording does not affect."""
    causes = [cause for cause, cause_facts in CAUSE_OF.items() if cause_facts.late_rank and not cause_facts.slowed]
    return {
        cause: float(median([sum(row.ms_per_step or 0.0 for row in rank.ledger if row.cause == cause) for rank in ranks]))
        for cause in causes
        if ranks
    }


def _action(stragglers: Sequence[Straggler], ranks: Sequence[RankResult]) -> Action:
    """Return the action; if several ranks are late for separate reasons, with the action for each."""
    first = stragglers[0]
    single = [each for each in stragglers if each.kind != "set" and each.reason is not None]
    parts = single[:MAX_ADVICE] if first.kind == "set" and first.reason is None and first.kernel_ratio is None else []
    action, *other_actions = [_action_of(each, ranks) for each in parts or [first]]
    how = " ".join([action.how, *(other.sentence for other in other_actions)])
    if not first.positions:
        return replace(action, how=how)
    advice_here = (
        "Its trace is" if len(first.ranks) == 1 else "Their traces are" if len(first.positions) > 1 else "The trace of one is"
    )
    return replace(action, how=f"{how} {advice_here} on the timeline.")


def _action_of(straggler: Straggler, ranks: Sequence[RankResult]) -> Action:
    name = who(straggler, ranks) if len(straggler.ranks) <= NAMED_RANKS or straggler.kind == "host" else "the late ranks"
    their = "its" if len(straggler.ranks) == 1 else "their"
    match straggler.reason:
        case "data_wait":
            return Action("Feed", f"{name} as fast as the others", f": check {their} storage, workers and decoding first.")
        case "python_host":
            return Action("Take", f"the extra Python off {name}", f": check {their} code in the step first, then {their} CPU.")
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
    """Return "critical" also for half the gain, if the others visibly wait long enough for the rank.

    The replays' errors are subtracted from the loss, so it is a lower bound; the recording shows the wait.
    """
    if isinstance(evidence, StragglerEvidence) and evidence.severity is None:
        is_visible = min(evidence.waited_share, step.share(evidence.own_ms)) >= CRITICAL_SHARE
        if is_visible and step.share(evidence.lost_ms or 0.0) >= SURE_CRITICAL_SHARE:
            evidence = replace(evidence, severity="critical")
    return judge(evidence, step, threshold)


def _skewed_rank(communication: Communication, step_ms: float) -> RankWaits | None:
    """Return the rank that the others wait for in the profile; None if no rank leads or in a pipeline."""
    if communication.pipeline:
        return None
    total = sum(waits.late_ms for waits in communication.ranks)
    first = max(communication.ranks, key=lambda waits: waits.late_ms, default=None)
    if first is None or first.late_ms <= LEADS * total or first.late_ms < SKEW_SHARE * step_ms:
        return None
    return first


RULE = Rule(
    "straggling-rank",
    measure,
    reads=OF_TRACE | {"other_ranks"},
    explains=Explains(topics=frozenset({"late_rank"})),
    judge=judge_straggler,
    comes_before=tuple(
        Relation(rule, applies=is_seen_to_be_late, behind=True) for rule in ("launch-bound", "python-between-operators")
    ),
    requires=("steps", "ranks"),
)
