"""There are more loader workers than cores, or the training's main thread waits for a core.

What it checks
    How long the training's main thread was ready to run without a core, if the kernel counts this. The rule also compares the
    number of loader workers with the cores that the training process may use. The number comes from telemetry, or else from the
    recorder. It also reports if all cores are busy and more tasks wait.
Why it costs time
    The main thread launches the GPU's work, so its wait for a core delays the GPU. Too many workers share the cores: each
    batch comes later, the training process itself waits for a core, and all workers use memory.
What to do
    Use at most one worker per core, minus one core for each training process. In a container, ask for more cores.
When it is wrong
    Other users' programs take the cores. Then move these programs. Or workers mostly wait for a network file system. More workers
    than cores then help, because they send more requests at the same time.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import ASK_FOR_CORES, loader_limit
from sawtooth.analysis.findings.model import Advice, Evidence, Judgement, Rule, finding_from
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.knowledge.owners import HOST_LOADING
from sawtooth.analysis.metrics.loader_rate import sample_cost
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Action, CodeChange, Finding, RunResult
from sawtooth.analysis.telemetry.host import CORES_FULL_PCT, HostLoad
from sawtooth.analysis.units import in_number
from sawtooth.ingest.manifest import UserFacts

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …, num_workers=64)",
        "DataLoader(dataset, …, num_workers=max(1, len(os.sched_getaffinity(0)) - 1))",
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, …, num_workers=64)",
        "DataLoader(dataset, …, num_workers=max(1, len(os.sched_getaffinity(0)) - 1))",
    ),
    CodeChange("Transformers", "TrainingArguments(dataloader_num_workers=64)", "TrainingArguments(dataloader_num_workers=15)"),
)

MIN_CORE_WAIT_PCT = 10.0  # Percent of the time. A shorter wait is within the noise of most steps.
FREE_A_CORE = Action("Use", "fewer loader workers or fewer threads in each", " (OMP_NUM_THREADS=1), or ask for more cores.")
UPPER_LIMIT = "This is an upper limit, because it is all of the thread's wait. If the GPU limits the step, the GPU's work hides a part of the wait."
NOT_PREDICTED = "Not predicted: the recording does not show how long each process waits for a core."
RISK = "None if the cores are the limit. Measure samples per second before and after."


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the main thread waits for a core, or if the cores are full."""
    host = context.run.telemetry.host
    waits_pct = host.means.get("main_waits_pct") if host else None
    if host is not None and waits_pct is not None and waits_pct >= MIN_CORE_WAIT_PCT:
        yield _evidence_of_core_waits(context, host, waits_pct)
        return
    workers, cores = (host.means.get(column) if host else None for column in ("workers", "cores"))
    cpu_pct = host.cpu_pct if host else None
    if host is None or workers is None or cores is None or cpu_pct is None:
        timed = tuple(_evidence_by_timing(context.run.manifest.facts))
        yield from timed or _evidence_of_crowding(host, context.run, _loads_inline_ms(context))
        return
    if workers <= cores or cpu_pct < CORES_FULL_PCT:
        yield from _evidence_of_crowding(host, context.run, _loads_inline_ms(context))
        return
    yield Evidence(
        Advice(
            f"{workers:.0f} loader workers share {in_number(cores, 'core, which is busy', 'cores, which are busy')} {cpu_pct:.0f} % of the time",
            _fewer_workers(cores),
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES,
        ),
        severity="warning",
        rows=host.evidence("workers", "cores", "cpu_usable_pct", "cpu_pct", "workers_cpu_pct"),
    )


def _fewer_workers(cores: float) -> Action:
    """Return the advice to leave one core to the training process."""
    max_workers = max(int(cores) - 1, 1)
    return Action(
        "Use",
        f"at most {in_number(max_workers, 'worker')}",
        ": more workers share the cores, and take time from the training process.",
    )


def _evidence_of_core_waits(context: RuleContext, host: HostLoad, waits_pct: float) -> Evidence:
    """Return the evidence that the main thread waits ``waits_pct`` of the time for a core."""
    workers, cores, cpu_pct = host.means.get("workers"), host.means.get("cores"), host.cpu_pct
    workers_clause = f" with {in_number(workers, 'loader worker')}" if workers else ""
    cores_clause = f" on {in_number(cores, 'core')}" if cores else ""
    busy_clause = f", which are busy {cpu_pct:.0f} % of the time" if cores and cpu_pct is not None else ""
    action = FREE_A_CORE if workers else ASK_FOR_CORES
    return Evidence(
        Advice(
            f"The training's main thread waits for a core {waits_pct:.0f} % of the time{workers_clause}{cores_clause}{busy_clause}",
            replace(action, how=f"{action.how} The thread that launches the GPU's work should never wait for a core."),
            note=UPPER_LIMIT,
            risk=RISK,
            changes=CHANGES if workers else (),
        ),
        lost_ms=waits_pct / 100 * context.step_ms if context.step_ms else None,
        severity="warning",
        rows=host.evidence("main_waits_pct", "workers", "cores", "cpu_usable_pct", "cpu_pct", "workers_cpu_pct"),
    )


def _loads_inline_ms(context: RuleContext) -> float:
    """Return the GPU's wait for batches that the training loads itself, ms per step."""
    inline = context.run.telemetry.host is not None and context.recording.named(LOADS_INLINE)
    return context.lost_ms("data_wait") if inline else 0.0


def _evidence_of_crowding(host: HostLoad | None, run: RunResult, loads_ms: float) -> Iterator[Evidence]:
    """Yield the evidence that all cores are busy and tasks wait for a core.

    The training's own wait is unknown. ``loads_ms`` is the loop's wait per step for batches that the training loads itself.
    """
    clause = host.without_a_free_core() if host is not None else None
    if host is None or clause is None:
        return
    limit, step_ms = loader_limit(run.manifest.facts, host), run.metrics["best_step_time_ms"].value
    if limit is not None and limit[1] is ASK_FOR_CORES and step_ms and loads_ms >= FEW_LINES_TO_CHANGE.share * step_ms:
        return  # The finding on the loader reports these cores.
    workers = host.means.get("workers")
    yield Evidence(
        Advice(
            f"{clause[0].upper()}{clause[1:]}",
            FREE_A_CORE if workers else ASK_FOR_CORES,
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES if workers else (),
        ),
        severity="warning",
        rows=host.evidence("run_queue", "cpu_pressure_pct", "cores", "cpu_usable_pct", "cpu_pct", "main_cpu_pct", "workers"),
    )


def _evidence_by_timing(facts: UserFacts) -> Iterator[Evidence]:
    """Yield the evidence that more workers than cores were timed, and that samples mostly compute."""
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    if cost is None or not facts.loader_cores or workers <= facts.loader_cores or cost.limit == "waiting":
        return
    yield Evidence(
        Advice(
            f"{workers} loader workers share {in_number(facts.loader_cores, 'core')}, and the work on a sample is {100 * cost.computes:.0f} % computation",
            _fewer_workers(facts.loader_cores),
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES,
        ),
        severity="info",
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield the findings for a run without GPU work, by the loader's own times, else by the host's."""
    timed = tuple(_evidence_by_timing(result.manifest.facts))
    loads_ms = host_parts(result).get(HOST_LOADING, 0.0)
    for evidence in timed or _evidence_of_crowding(result.telemetry.host, result, loads_ms):
        yield finding_from(RULE.slug, evidence, Judgement("info", evidence.confidence), RULE.explains)


RULE = Rule(
    "workers-beyond-cores",
    measure,
    reads=frozenset({"host_telemetry", "loader_timing"}),
    requires=("host or loader",),
    host_check=check_host,
)
