"""The profiled steps do not represent the run.

What it checks
    The difference between the run's step outside the profile and the step estimated from the profile, for runs without loader
    workers in the trace.
Why it costs time
    The profile cannot explain work that it does not contain: a checkpoint every 25th step, an evaluation, or another slow
    program on the host.
What to do
    Profile more steps, or a cycle that contains the rare work: schedule(wait=…, active=…, repeat=…).
When it is wrong
    Telemetry covers more than the training loop, such as start-up or evaluation.
References
    https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.copies import made_tensors_may_slow_run
from sawtooth.analysis.findings.queries.loading import hidden_time, loader_may_limit, profiled_steps
from sawtooth.analysis.metrics.pauses import Round
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.run.scaled_ledger import unseen_ms
from sawtooth.analysis.units import in_words, significant

MIN_EXPLAINED_SHARE = 0.5  # Of the time that the profiled steps do not show. Other rules report known work with a larger share.

PROFILE_RARE_WORK = Action(
    "Profile",
    "enough steps to include rare work",
    ", such as a checkpoint, an evaluation or logging. The profiled steps do not contain it.",
    records_again=True,
)
FIND_WORK_OF_STEPS = Action(
    "Look",
    "for work or waits that are in every step of the run, but in no profiled step",
    ", or for other programs on the host. Most of the run's steps have this extra time, so it is not rare work. Then profile again.",
)
WHOLE_ROUND = (
    ": at least {steps} steps, with the work before the first step. The profiled steps do not contain this work. `sawtooth run` profiles whole "
    "rounds of up to three seconds; for longer rounds, add `--steps {steps}`."
)
FIND_WORK_OF_ROUNDS = Action(
    "Look",
    "for work or waits that are in every round of the run, but not in the profiled round",
    ", or for other programs on the host. Every round has this extra time, so it is not rare work. Then profile again.",
)

CHANGES = (
    CodeChange(
        "PyTorch",
        "schedule(wait=1, warmup=1, active=3)",
        "schedule(wait=5, warmup=3, active=30, repeat=2)   # spans the rare work",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the run's step time contradicts the profile."""
    hidden = hidden_time(context)
    if hidden is None or loader_may_limit(context) or made_tensors_may_slow_run(context):
        return  # The rules prefetch-queue-hid-the-loader and tensors-made-on-cpu report this time.
    explained_ms = sum(
        pause.ms_per_step
        for pause in context.rank.best.pauses
        if pause.in_step and (pause.reason == "checkpoint" or pause.ranks)
    )
    if (parts := context.rank.best.parts) is not None:
        explained_ms += parts.first_ms
    if explained_ms >= MIN_EXPLAINED_SHARE * (hidden.run_ms - hidden.estimate_ms):
        return  # The rules periodic-stalls and workers-start-again report this time.
    period_s = context.telemetry.sawtooth.period_s if context.telemetry is not None else None
    rounds = context.rank.best.round
    has_all_kinds = (rounds is not None and rounds.profiled) or any(
        evidence.even_steps and evidence.source == context.rank.best.source for evidence in context.rank.best.evidence
    )
    period_clause = f". The run stops about every {significant(period_s, 2)} s" if period_s else ""
    yield Evidence(
        Advice(
            f"The profiled steps do not represent the run: they take {hidden.profiled_steps_take}, {hidden.evidence} {in_words(hidden.run_ms)}{period_clause}",
            _action(rounds, has_all_kinds),
            note="Not predicted, because the trace does not show what the run does outside the profiled steps.",
            risk="Longer traces are larger. Without stacks, they stay small.",
            changes=() if has_all_kinds else CHANGES if rounds is None else _profile_two_rounds(rounds),
        ),
        lost_ms=unseen_ms(context.rank.ledger, context.rank.best) or max(hidden.run_ms - hidden.estimate_ms, 0.0),
        severity="warning",
        rows=[{"outside the profile": hidden.proof}, *profiled_steps(context)],
    )


def _action(rounds: Round | None, has_all_kinds: bool) -> Action:
    """Return what to profile, or what to look for if the profile already contains steps of every kind."""
    if rounds is None:
        return FIND_WORK_OF_STEPS if has_all_kinds else PROFILE_RARE_WORK
    return (
        FIND_WORK_OF_ROUNDS
        if rounds.profiled
        else Action("Profile", "a whole round", WHOLE_ROUND.format(steps=rounds.steps), records_again=True)
    )


def _profile_two_rounds(rounds: Round) -> tuple[CodeChange, ...]:
    (change,) = CHANGES
    after = f"schedule(wait={rounds.steps}, warmup=1, active={2 * rounds.steps})   # two rounds of {rounds.steps} steps"
    return (replace(change, after=after),)


RULE = Rule(
    "profile-not-representative",
    measure,
    reads=TRACE_SOURCES | {"telemetry", "loader_timing"},
    explains=Explains(topics=frozenset({"hidden"})),
    requires=("steps", "run's step"),
    threshold=OTHER_CODE,
)
