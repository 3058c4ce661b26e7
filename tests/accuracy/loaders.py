"""Compare predicted numbers of loader workers with measured ones.

    python -m tests.accuracy.loaders FOLDER [--data FOLDER]

FOLDER has one folder per run: ``run.sawtooth``, written by the capture helper, and ``truth.json`` with ``kind``
(compute, waits), ``workers``, ``cores`` and ``batch``. By the stopwatch it has the loop's ``step_s`` before and
``after_s`` after the recording, and ``alone_s``, the step with a batch that is ready. Runs of one kind and one number
of cores form a group.

From each run, the samples per second are predicted for the number of workers of every other run in the group. The prediction
uses the time of a sample in the workers, and is limited by ``alone_s``. It is compared with both stopwatches of the other
run. The second table has each recording's findings: whether the finding about the loader comes first, and what takes the time
of a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.loop.loading import predict
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.captured import Truth, command, groups_by

BAR = 0.15  # Share of the nearer measured rate.
STARVED = 1.1  # Step time ÷ ``alone_s``. Above this ratio, the GPU waits for the loader.
LOADER_RULES = ("data-loader-starves-gpu", "prefetch-queue-hid-the-loader")
LIMIT_OF_KIND = {"compute": "computing", "waits": "waiting"}
HEAD = "| loader | from | to | samples/s before, after | predicted | error | in interval |\n|---|---:|---:|---:|---:|---:|---|"
FINDINGS_HEAD = "| loader | workers | step, alone, ms | starves | first finding | samples |\n|---|---:|---:|---|---|---|"


@dataclass(frozen=True)
class Judged:
    """One prediction: samples per second by both stopwatches and as predicted, with its interval."""

    loader: str
    workers: tuple[int, int]
    measured: tuple[float, float]
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        low, high = sorted(self.measured)
        return self.predicted / min(max(self.predicted, low), high) - 1

    @property
    def in_interval(self) -> bool:
        low, high = sorted(self.measured)
        return self.low <= high and low <= self.high

    def line(self) -> str:
        workers = " | ".join(str(number) for number in self.workers)
        measured = ", ".join(f"{rate:,.0f}" for rate in self.measured)
        predicted = f"{self.predicted:,.0f} ({self.low:,.0f} to {self.high:,.0f})"
        return f"| {self.loader} | {workers} | {measured} | {predicted} | {self.error:+.0%} | {'yes' if self.in_interval else 'no'} |"


def groups(folder: Path) -> dict[str, dict[str, Truth]]:
    """Return the truths by run, grouped if only the number of workers differs."""
    return groups_by(folder, lambda truth: f"{truth['kind']}, {truth['cores']} cores")


def rates(facts: UserFacts, alone_s: float, workers: int) -> tuple[float, float, float] | None:
    """Return the samples per second of ``workers`` with their bounds, if the step alone takes ``alone_s``.

    None if no sample was timed.
    """
    cost = sample_cost(facts)
    if cost is None:
        return None
    rate = predict(cost, workers, cores_of(facts), int(facts.loader_workers or 0))

    def fed(samples: float) -> float:
        loading_s = cost.batch / samples
        return cost.batch / (max(alone_s, loading_s) if workers else alone_s + loading_s)

    return fed(rate.value), fed(rate.low), fed(rate.high)


def judge(loader: str, truths: Mapping[str, Truth], results: Mapping[str, RunResult]) -> Iterator[Judged]:
    """Yield one loader's predictions from each recording to every number of workers."""
    for before, after in product(sorted(truths, key=lambda name: int(truths[name]["workers"])), repeat=2):
        truth, own = truths[after], truths[before]
        predicted = rates(results[before].manifest.facts, own["alone_s"], truth["workers"])
        if predicted is not None:
            measured = (truth["batch"] / truth["step_s"], truth["batch"] / truth["after_s"])
            yield Judged(loader, (own["workers"], truth["workers"]), measured, *predicted)


def findings_row(loader: str, truth: Truth, result: RunResult) -> str:
    """Return the row of the second table: the product's findings on one recording."""
    starves = min(truth["step_s"], truth["after_s"]) > STARVED * truth["alone_s"]
    first = result.findings[0].rule if result.findings else "none"
    right = (first in LOADER_RULES) == starves
    cost = sample_cost(result.manifest.facts)
    limit = (cost.limit or "both count") if cost is not None else "not timed"
    return (
        f"| {loader} | {truth['workers']} | {1e3 * truth['step_s']:.1f}, {1e3 * truth['alone_s']:.1f} | {'yes' if starves else 'no'} | "
        f"{first} ({'right' if right else 'wrong'}) | {limit} ({'right' if limit == LIMIT_OF_KIND.get(truth['kind']) else 'wrong'}) |"
    )


def main(folder: Path, data: Path) -> None:
    library, lines = Library(DataFolder(data).create()), list[str]()
    print(HEAD)
    for loader, truths in groups(folder).items():
        results = {
            name: result_of(
                ingest_into_runs(library.folder, [(folder / name / "run.sawtooth", f"{name}.sawtooth")], name=name).runs[0],
                library,
            )
            for name in truths
        }
        judged = list(judge(loader, truths, results))
        for one in judged:
            print(one.line(), flush=True)
        within, in_interval = sum(abs(one.error) <= BAR for one in judged), sum(one.in_interval for one in judged)
        lines.append(f"{loader}: {within} of {len(judged)} within {BAR:.0%}, {in_interval} intervals contain a measured rate")
        lines += ["", FINDINGS_HEAD, *(findings_row(loader, truths[name], results[name]) for name in truths), ""]
    print("", *lines, sep="\n")


if __name__ == "__main__":
    command(__doc__, main)
