"""Sentences and tables about a run without GPU work: where the host's time goes."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.knowledge.frames import FRAME, MODULE
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.loading import loader_rates
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt

PARTS = "Where the host's time goes"
FUNCTIONS = "Your functions by their time outside operators"
OPERATORS = "Operators by their own time on the host"
THREADS = "Threads by their time inside operators"
SLOWED = "profiled steps take {times} times as long as the run's, so these are shares"
RUN_IS_SLOWER = "the run's steps take {times} times as long, so these are shares of a profiled step"
UNEVEN = "a few slow steps make the mean step {times} times as long, so these are shares"
MIN_MOSTLY_SHARE = 0.5  # Share from which the text says "most" or "mostly".
WAITING, INSIDE, OUTSIDE = "Waiting for batches", "Inside operators", "Outside operators"
FIRST_BATCH = "Waiting for an epoch's first batch"
PAUSES = {"evaluation": "Evaluations", "checkpoint": "Checkpoints", "unknown": "Outside the profiled steps"}
COMMUNICATION = "Communication on the CPU"


def first_line(work: HostWork) -> str:
    """Return the first line about a run without GPU work: the longest part of the step."""
    parts = dict(_parts(work))
    first_ms = parts.pop(FIRST_BATCH)
    parts[WAITING] += first_ms
    name, ms = max(parts.items(), key=lambda part: part[1])
    step = f"each {_step(work)} step" if work.step.value is not None else f"the recorded {fmt.duration_ms(work.total_ms)}"
    step = "a profiled step" if (work.slowed or work.run_is_slower) and work.parts is None else step
    share = fmt.share(ms / work.total_ms) if work.total_ms else fmt.MISSING
    sentences = {
        WAITING: f"The host waits for batches {share} of {step}{_in_loader(work, first_ms)}",
        INSIDE: f"{share} of {step} is operators on the host"
        + (f", mostly {fmt.clean(work.operators[0].name, 60)}" if work.operators else ""),
        COMMUNICATION: f"{share} of {step} is communication on the CPU, mostly {fmt.clean(work.collective, 60)}",
        OUTSIDE: f"{share} of {step} lies outside operators: {_outside(work)}",
        PAUSES["evaluation"]: f"Evaluations between training steps take {share} of {step}",
        PAUSES["checkpoint"]: f"Checkpoints between training steps take {share} of {step}",
        PAUSES["unknown"]: f"{share} of {step} is work of a few long steps, which the profiled steps do not show",
    }
    return f"{sentences[name]}. No GPU work was recorded."


def _in_loader(work: HostWork, first_ms: float) -> str:
    """Return the share of epochs' first batches if this share is large, else the function that loads."""
    if first_ms >= MIN_MOSTLY_SHARE * work.loading_ms > 0:
        return f", mostly for the first batch of each epoch ({fmt.share(first_ms / work.total_ms)})"
    first = _first_function(work) if work.loads_inline else None
    return f", which it loads itself: {first}" if first is not None else ""


def _outside(work: HostWork) -> str:
    """Return the function that takes most time outside operators, or how to find it."""
    return _first_function(work) or "Python, or what the profiler does not see. `sawtooth run --stacks` names the function"


def _first_function(work: HostWork) -> str | None:
    """Return the share and the place of the user's function that takes most of the time outside operators."""
    frame = FRAME.match(work.functions[0][0]) if work.functions else None
    if frame is None:
        return None
    share = work.functions[0][1] / _functions_ms(work)
    amount = "most of it" if share >= MIN_MOSTLY_SHARE else f"{fmt.share(share)} of your functions'"
    function = "the script itself" if frame["function"] == MODULE else fmt.clean(frame["function"], 60)
    line = f" line {frame['line']}" if frame["line"] else ""
    return f"{amount} in {function}, {fmt.clean(frame['file'], 60)}{line}"


def _functions_ms(work: HostWork) -> float:
    """Return the total ms of the user's functions, with library calls; 1 if there are no functions."""
    return sum(ms for _, ms in work.functions) or 1.0


def _step(work: HostWork) -> str:
    prefix = "" if work.step.trust == "ok" else "≈\u00a0"
    return f"{prefix}{fmt.duration_ms(work.step.value or 0.0)}"


def first_line_of_marks(result: RunResult) -> str | None:
    """Return the first line for a run with step marks and a measured loader rate; None without the rate."""
    step_ms, facts = result.metrics["best_step_time_ms"].value, result.manifest.facts
    rates = loader_rates(facts, step_ms)
    if rates is None or step_ms is None:
        return None
    if result.findings:
        return f"{result.findings[0].title}."
    loaded, used = rates
    step_sentence = f"A step takes {fmt.duration_ms(step_ms)}"
    if loaded.low <= used:
        return f"{step_sentence}: the loop uses {_per_second(used)}, and the loader was timed at {_per_second(loaded.value)}."
    return f"{step_sentence}, and the loader keeps up: it can load {_per_second(loaded.value)}, and the loop uses {_per_second(used)}."


def facts(result: RunResult, forecast: CombinedPrediction | None) -> list[tuple[str, str]]:
    """Return label and value of the loop's rate, now and after the change; empty without a batch size."""
    rates = loader_rates(result.manifest.facts, result.metrics["best_step_time_ms"].value) if result.lead is None else None
    if rates is None:
        return []
    now = _per_second(rates[1])
    after = f" → ≈\u00a0{_per_second(rates[1] * forecast.speedup)}" if forecast is not None else ""
    return [("the loop uses", now + after)]


def _per_second(samples: float) -> str:
    return f"{fmt.number(samples)}\u00a0samples/s"


Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # Title, headings and rows.


def tables(work: HostWork) -> list[Table]:
    """Return the tables of the loop's time, operators, functions and threads.

    They have shares instead of times if profiled steps and the run's steps take different times.
    """
    total_ms = work.total_ms
    profiled_ms = total_ms / work.work_scale if work.work_scale else total_ms
    ratio = work.slowed or work.run_is_slower
    basis = f"of each {_step(work)} step" if work.steps else f"of the recorded {fmt.duration_ms(total_ms)}"
    if ratio:
        reason = RUN_IS_SLOWER if not work.slowed else UNEVEN if work.of_the_profile else SLOWED
        basis = reason.format(times=fmt.number(ratio))

    def time_or_share(ms: float, of_ms: float = profiled_ms) -> str:
        return fmt.share(ms / of_ms) if ratio else fmt.duration_ms(ms)

    time_heading = "Share" if ratio else "Time"
    parts = [
        (name, fmt.duration_ms(ms * work.of_the_step), fmt.share(ms / total_ms) if total_ms else fmt.MISSING)
        for name, ms in _parts(work)
        if ms > 0
    ]
    operators = [(fmt.clean(o.name, 60), time_or_share(o.ms), _calls(o.calls)) for o in work.operators]
    threads = [(fmt.clean(t.name, 60), time_or_share(t.ms)) for t in work.threads]
    functions = [(fmt.clean(name, 90), time_or_share(ms, _functions_ms(work))) for name, ms in work.functions]
    per = ", per profiled step" if work.steps else ""
    shown: list[Table] = [
        (f"{PARTS}: {basis}", ("Part", "Share"), [(name, share) for name, _, share in parts])
        if ratio
        else (f"{PARTS}, {basis}", ("Part", "Time", "Share"), parts),
    ]
    shown += [(f"{OPERATORS}{per}", ("Operator", time_heading, "Calls"), operators)] if operators else []
    shown += [(f"{FUNCTIONS}{per}", ("Function", time_heading), functions)] if functions else []
    return shown + ([(f"{THREADS}{per}", ("Thread", time_heading), threads)] if len(threads) > 1 else [])


def _calls(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else fmt.number(calls)


def _parts(work: HostWork) -> list[tuple[str, float]]:
    """Return the name and the ms of each part of the step or of the recorded time."""
    pauses = work.parts.apart_ms if work.parts is not None else ()
    return [
        (WAITING, work.loading_ms - work.first_ms),
        (FIRST_BATCH, work.first_ms),
        (INSIDE, work.operators_ms),
        (COMMUNICATION, work.communication_ms),
        (OUTSIDE, work.rest_ms - work.communication_ms),
        *((PAUSES[kind], ms) for kind, ms in pauses),
    ]
