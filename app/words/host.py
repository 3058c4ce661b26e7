"""What a run without GPU work says: where the host's time goes."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.run.host import HostWork
from sawtooth.app import format as fmt

PARTS = "Where the host's time goes"
OPERATORS = "Operators by their own time on the host"
THREADS = "Threads"


def first_line(work: HostWork) -> str:
    """Return the first line about such a run."""
    parts = _parts(work)
    name, ms = max(parts, key=lambda part: part[1])
    step = f"each {fmt.duration_ms(work.step.value)} step" if work.step.value is not None else "the recorded time"
    share = fmt.share(ms / work.total_ms) if work.total_ms else fmt.MISSING
    leads = {
        "Waiting for batches": f"The host waits for batches {share} of {step}",
        "Inside operators": f"{share} of {step} is operators on the host"
        + (f", {fmt.clean(work.operators[0].name, 60)} first" if work.operators else ""),
        "Outside operators": f"{share} of {step} lies outside operators: Python, or what the profiler does not see",
    }
    return f"{leads[name]}. No GPU work was recorded."


def unit(work: HostWork) -> str:
    """Return what the times are of: a profiled step, or all that was recorded."""
    return f"a profiled step, {fmt.many(work.steps, 'step')}" if work.steps else "of the whole recording"


def tables(work: HostWork) -> list[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Return title, heads and rows of what is known: the loop's time, the operators, the threads."""
    whole = work.total_ms
    parts = [(name, fmt.duration_ms(ms), fmt.share(ms / whole) if whole else fmt.MISSING) for name, ms in _parts(work)]
    operators = [(fmt.clean(o.name, 60), fmt.duration_ms(o.ms), fmt.number(o.calls)) for o in work.operators]
    threads = [(fmt.clean(t.name, 60), fmt.duration_ms(t.ms)) for t in work.threads]
    per = "per step" if work.steps else "in all"
    return [
        (f"{PARTS}, {unit(work)}", ("Part", "Time", "Share"), parts),
        (OPERATORS, ("Operator", f"Time {per}", f"Calls {per}"), operators),
        (THREADS, ("Thread", f"Inside operators {per}"), threads),
    ]


def _parts(work: HostWork) -> list[tuple[str, float]]:
    return [
        ("Waiting for batches", work.loading_ms),
        ("Inside operators", work.operators_ms),
        ("Outside operators", work.rest_ms),
    ]
