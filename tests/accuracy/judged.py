"""Judge findings by the recordings made after the change.

The planted cause should be the first finding. A critical finding is false if such a recording refutes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.findings.judging import CRITICAL_SHARE
from sawtooth.analysis.findings.ordering import ANOTHER_SOLUTION
from sawtooth.analysis.run.model import Finding
from tests.accuracy.predictions import OTHER_WORK, rules_of
from tests.analysis.findings.rules.cases import CASES

SAVES = 0.2  # Share of the step. A finding whose fix saves at least this much must be critical.
REFUTED = CRITICAL_SHARE / 2  # Share of the step. A finding whose fix saved less should not come first.
NEVER_IDLE = 97.0  # Percent, NVML's utilization of a run that does not wait for launches.


@dataclass(frozen=True)
class Judged:
    """The findings of one recording, judged.

    ``planted`` is the planted cause (empty if no rule exists for it). ``first`` says that a finding of this cause came first,
    ``critical`` that one was critical. ``saved`` is the part of the step that the best fix saved, and ``false`` has the
    titles of critical findings that were false.
    """

    name: str
    planted: tuple[str, ...]
    first: bool
    critical: bool
    saved: float
    false: tuple[str, ...]


def judged(name: str, findings: Sequence[Finding], truths: Mapping[str, Mapping[str, Any]]) -> Judged:
    """Judge the findings of ``name`` by the recordings in ``truths``."""
    truth = truths[name]
    before, alone = truth["step_s_pipelined"], "world" not in truth  # Ranks that wait for each other have busy GPUs.
    idle_never = alone and (truth.get("nvml_mean") or {}).get("gpu_util", 0.0) >= NEVER_IDLE
    false = [f.title for f in findings if f.severity == "critical" and idle_never and "host_pace" in f.explains.topics]
    saved: dict[str, float] = {}
    for fix in truth.get("fixed_by", []):
        rule, after = _rule_of(name, fix), truths.get(fix["recording"])
        if rule is not None and after is not None and name not in OTHER_WORK:
            saved[rule] = 1 - after["step_s_pipelined"] / before
            false += [f.title for f in findings if f.rule == rule and f.severity == "critical" and saved[rule] < REFUTED]
    # If a finding names other fixes of its cause, it counts for these fixes too.
    named = [
        f.rule in saved or any(f"{ANOTHER_SOLUTION} {g.fix}" in f.prediction_note for g in findings if g.rule in saved)
        for f in findings
    ]
    first = bool(named) and named[0]
    critical = any(f.severity == "critical" for f, is_named in zip(findings, named, strict=True) if is_named)
    return Judged(name, tuple(saved), first, critical, max(saved.values(), default=0.0), tuple(false))


def _rule_of(before: str, fix: Mapping[str, Any]) -> str | None:
    known = {(b, a): slug for slug, case in CASES.items() for b, a, _ in case.measured}
    return next(iter(rules_of(before, fix)), known.get((before, fix["recording"])))


def summary(all_of: Sequence[Judged]) -> Iterator[str]:
    """Yield one line each on planted causes, their severity, and false critical findings."""
    planted = [j for j in all_of if j.planted]
    late = [f"{j.name} ({', '.join(j.planted)})" for j in planted if not j.first]
    large = [j for j in planted if j.saved > SAVES]
    mild = [f"{j.name} ({', '.join(j.planted)})" for j in large if not j.critical]
    yield f"Planted causes first: {len(planted) - len(late)} of {len(planted)}{_but(late)}."
    yield f"Critical where the fix saves over {SAVES:.0%} of the step: {len(large) - len(mild)} of {len(large)}{_but(mild)}."
    false = [f"{j.name}: {title}" for j in all_of for title in j.false]
    yield f"False critical findings: {len(false)} in {len(all_of)} recordings{'; '.join(['', *false])}."


def _but(names: Sequence[str]) -> str:
    return f"; not {', '.join(names)}" if names else ""
