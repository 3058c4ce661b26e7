"""Less confidence in a change if a host limits the steps, because hosts differ and change their speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.compare.significance import reasons
from sawtooth.analysis.compare.significance.certainty import ComparisonEvidence, Verdict, change_confidence
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, mean_of_all, on_other_machines

# Share of a step by which two processes of one loop may differ if the host limits it. Of 30 such pairs, 9 would be judged changed with
# medium confidence at 20 %, and 5 at this value (evidence/comparisons.md). Two halves of one process differ by at most 19 % in 95 % of the loops.
HOST_FLOOR = 0.50
ON_HOST_FLOOR = 1.5  # On a shared host, one run of a program took 1.0 to 2.4 times as long as another.
# Share of a step by which the hosts of two machines may differ. Two machines with an H200 each ran 12 loops that the host limits.
# One needed up to 1.58 times as long as the other (evidence/comparisons.md).
OTHER_MACHINE_FLOOR = 1.0


def limit_confidence(judged: Verdict, a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], *, single: bool) -> Verdict:
    """Return the verdict, with less confidence if hosts limit single runs or runs on other machines."""
    other_machines = on_other_machines(a, b)
    runs = (*a, *b)
    if not (single or other_machines) or not judged.shown or judged.ci95_ms is None or not any(run.host_bound for run in runs):
        return judged
    best_a, best_b = (mean_of_all([run.best_ms for run in side]) or 0.0 for side in (a, b))
    floor = OTHER_MACHINE_FLOOR if other_machines else HOST_FLOOR
    floor = max(floor, ON_HOST_FLOOR) if any(run.on_host for run in runs) else floor
    change = ComparisonEvidence(best_b - best_a, min(best_a, best_b), judged.ci95_ms, floor, same_source=True)
    confidence = change_confidence(change)
    if confidence == "high" or judged.confidence == "low":
        return judged
    reason = reasons.OTHER_MACHINES if other_machines else reasons.HOSTS_VARY
    return replace(judged, confidence=confidence or "low", why=f"{judged.why} {reason}")
