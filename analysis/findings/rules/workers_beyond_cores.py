"""There are more loader workers than cores, or the training's main thread waits for a core.

What it checks
    How long the training's main thread was ready to run without a core, if the kernel counts this. It also compares the
    loader workers counted by telemetry with the cores that the training process may use. Without samples of the host, it uses
    the workers that the recorder timed, if their samples compute. It also reports if all cores are busy and more tasks wait.
Why it costs time
    The main thread launches the GPU's work, so its wait for a core delays the GPU. Too many workers share the cores: each
    batch comes later, the training process itself waits for a core, and all workers use memory.
What to do
    Use at most one worker per core, minus one core for each training process. In a container, ask for more cores.
When it is wrong
    Other users' programs take the cores, so these must be moved. Or workers mostly wait for a network file system. Then more
    workers than cores send more requests at the same time, which helps.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import ASK_FOR_CORES, limited_by
from sawtooth.analysis.findings.model import Advice, Evidence, Judgement, Rule, advise
from sawtooth.analysis.findings.policy import FEW_LINES
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

STARVED_PCT = 10.0  # Percent of the time. A smaller loss is within the noise of most steps.
FEWER_FOR_MAIN = Action("Use", "fewer loader workers or fewer threads in each", " (OMP_NUM_THREADS=1), or ask for more cores.")
AT_MOST = "This is an upper limit: all of the thread's wait. If the GPU limits the step, it hides a part of the wait. How much of it disappears is unknown."
NOT_PREDICTED = "Not predicted: the recording does not show how long each process waits for a core."
RISK = "None if the cores are the limit. Measure samples per second before and after."


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if there are more workers than cores and the cores are full."""
    host = context.run.telemetry.host
    waits = host.means.get("main_waits_pct") if host else None
    if host is not None and waits is not None and waits >= STARVED_PCT:
        yield _starved_finding(context, host, waits)
        return
    workers, cores = (host.means.get(column) if host else None for column in ("workers", "cores"))
    cpu = host.cpu_pct if host else None
    if host is None or workers is None or cores is None or cpu is None:
        timed = tuple(_by_timing(context.run.manifest.facts))
        yield from timed or _evidence_of_crowding(host, context.run, _loads_inline_ms(context))
        return
    if workers <= cores or cpu < CORES_FULL_PCT:
        yield from _evidence_of_crowding(host, context.run, _loads_inline_ms(context))
        return
    yield Evidence(
        Advice(
            f"{workers:.0f} loader workers share {in_number(cores, 'core, which is busy', 'cores, which are busy')} {cpu:.0f} % of the time",
            _fewer(cores),
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES,
        ),
        severity="warning",
        rows=host.evidence("workers", "cores", "cpu_usable_pct", "cpu_pct", "workers_cpu_pct"),
    )


def _fewer(cores: float) -> Action:
    """Return the advice to leave one core to the training process."""
    max_workers = max(int(cores) - 1, 1)
    return Action(
        "Use",
        f"at most {in_number(max_workers, 'worker')}",
        ": more workers share the cores, and take time from the training process.",
    )


def _starved_finding(context: RuleContext, host: HostLoad, waits_pct: float) -> Evidence:
    """Return the finding on a main thread that waits ``waits_pct`` of the time for a core."""
    workers, cores, cpu = host.means.get("workers"), host.means.get("cores"), host.cpu_pct
    workers_note = f" with {in_number(workers, 'loader worker')}" if workers else ""
    on = f" on {in_number(cores, 'core')}" if cores else ""
    work = f", which are busy {cpu:.0f} % of the time" if cores and cpu is not None else ""
    action = FEWER_FOR_MAIN if workers else ASK_FOR_CORES
    return Evidence(
        Advice(
            f"The training's main thread waits for a core {waits_pct:.0f} % of the time{workers_note}{on}{work}",
            replace(action, how=f"{action.how} The thread that launches the GPU's work should never wait for a core."),
            note=AT_MOST,
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
    """Yield the evidence that all cores are busy and tasks wait for one.

    The training's own wait is not known. Nothing if the finding on the loader, for which the loop waits ``loads_ms`` of each
    step, names the same cores as its limit.
    """
    clause = host.without_a_free_core() if host is not None else None
    if host is None or clause is None:
        return
    of_loader, step_ms = limited_by(run.manifest.facts, host), run.metrics["best_step_time_ms"].value
    if of_loader is not None and of_loader[1] is ASK_FOR_CORES and step_ms and loads_ms >= FEW_LINES.share * step_ms:
        return
    workers = host.means.get("workers")
    yield Evidence(
        Advice(
            f"{clause[0].upper()}{clause[1:]}",
            FEWER_FOR_MAIN if workers else ASK_FOR_CORES,
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES if workers else (),
        ),
        severity="warning",
        rows=host.evidence("run_queue", "cpu_pressure_pct", "cores", "cpu_usable_pct", "cpu_pct", "main_cpu_pct", "workers"),
    )


def _by_timing(facts: UserFacts) -> Iterator[Evidence]:
    """Yield the evidence that more workers than cores were timed, and that their samples do not wait."""
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    if cost is None or not facts.loader_cores or workers <= facts.loader_cores or cost.limit == "waiting":
        return
    yield Evidence(
        Advice(
            f"{workers} loader workers share {in_number(facts.loader_cores, 'core')}, and the work on a sample is {100 * cost.computes:.0f} % computation",
            _fewer(facts.loader_cores),
            note=NOT_PREDICTED,
            risk=RISK,
            changes=CHANGES,
        ),
        severity="info",
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield the findings for a run without GPU work, by the loader's own times, else by the host's."""
    timed = tuple(_by_timing(result.manifest.facts))
    loads_ms = host_parts(result).get(HOST_LOADING, 0.0)
    for evidence in timed or _evidence_of_crowding(result.telemetry.host, result, loads_ms):
        yield advise(RULE.slug, evidence, Judgement("info", evidence.confidence), RULE.explains)


RULE = Rule(
    "workers-beyond-cores",
    measure,
    reads=frozenset({"host_telemetry", "loader_timing"}),
    requires=("host or loader",),
    of_the_host=check_host,
)
