"""More loader workers than cores.

What it checks
    The loader workers that telemetry counted, against the cores that the training process may use; without samples of the host, those that the recorder
    timed, where their samples compute.
Why it costs time
    Workers beyond the cores take turns: each batch comes later, the training process waits for a core itself, and all of them hold memory.
What to do
    At most one worker a core, less one core for each training process; in a container, ask for more cores.
When it is wrong
    When workers wait for a network file system most of the time: then more of them than cores keep more requests on the way.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.metrics.feeding import sample_cost
from sawtooth.analysis.run.model import CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.telemetry import CORES_FULL_PCT
from sawtooth.analysis.units import in_number

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …, num_workers=64)",
        "DataLoader(dataset, …, num_workers=len(os.sched_getaffinity(0)) - 1)",
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, …, num_workers=64)",
        "DataLoader(dataset, …, num_workers=len(os.sched_getaffinity(0)) - 1)",
    ),
    CodeChange("Transformers", "TrainingArguments(dataloader_num_workers=64)", "TrainingArguments(dataloader_num_workers=15)"),
)

FEWER = "Use at most {workers}: more of them take turns, and take cores from the training process."
NOT_PREDICTED = "Not predicted: how long each waits for a core is not recorded."
RISK = "None where the cores are the limit; measure samples a second before and after."


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when there are more workers than cores and the cores are full."""
    host = context.run.telemetry.host
    workers, cores, cpu = (host.means.get(column) if host else None for column in ("workers", "cores", "cpu_pct"))
    if host is None or workers is None or cores is None or cpu is None:
        yield from check_host(context.run)
        return
    if workers <= cores or cpu < CORES_FULL_PCT:
        return
    yield context.finding(
        RULE.slug,
        f"{workers:.0f} loader workers share {in_number(cores, 'core, which works', 'cores, which work')} {cpu:.0f} % of the time",
        FEWER.format(workers=in_number(max(cores - 1, 1), "worker")),
        ceiling_ms=None,
        severity="warning",
        confidence="medium",
        note=NOT_PREDICTED,
        risk=RISK,
        changes=CHANGES,
        evidence=host.evidence("workers", "cores", "cpu_pct", "workers_cpu_pct"),
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding when more workers than cores were timed, and their samples do not wait."""
    facts = result.manifest.facts
    cost, workers = sample_cost(facts), int(facts.loader_workers or 0)
    if cost is None or not facts.loader_cores or workers <= facts.loader_cores or cost.limit == "waiting":
        return
    yield Finding(
        rule=RULE.slug,
        severity="info",
        title=f"{workers} loader workers share {in_number(facts.loader_cores, 'core')}, and a sample computes {100 * cost.computes:.0f} % of its time",
        fix=FEWER.format(workers=in_number(max(facts.loader_cores - 1, 1), "worker")),
        confidence="medium",
        prediction_note=NOT_PREDICTED,
        risk=RISK,
        changes=CHANGES,
        explains=RULE.explains,
    )


RULE = Rule("workers-beyond-cores", ("host or loader",), check, Explains(), check_host)
