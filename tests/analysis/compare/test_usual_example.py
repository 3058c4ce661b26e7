"""Tests of the usual example on an H200, with one change after the other applied.

Predicted step times are compared with measured ones, and Sawtooth's figures with the stopwatch
(``sample_traces/usual_example.py``).
"""

from __future__ import annotations

import json

import pytest

from sawtooth.analysis.batch_predictions import step_at_batch
from sawtooth.analysis.compare.chain import chain
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.result_cache import result_of
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.words.comparisons import chain as words
from tests.support.common_folder import one_process_at_a_time
from tests.support.findings_of import library
from tests.support.paths import USUAL_EXAMPLE

NAMES = ("baseline", "workers", "benchmark", "batch", "compiled")
HOST_VARIES = 0.16  # Two stopwatch times of different stretches of one loop on a shared host.


@pytest.fixture(scope="module")
def runs():
    results = {}
    for name in NAMES:
        path = USUAL_EXAMPLE / name / "run.sawtooth"
        with one_process_at_a_time(f"usual-{name}"):
            results[name] = result_of(ingest_into_runs(library().folder, [(path, path.name)]).runs[0], library())
    return results


@pytest.fixture(scope="module")
def made(runs):
    return chain([side_of([run], library()) for run in runs.values()], lambda run, times: step_at_batch(run, times, library()))


def truth(name):
    return json.loads((USUAL_EXAMPLE / name / "truth.json").read_text(encoding="utf-8"))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", NAMES)
def test_step_and_rate_come_from_the_stopwatch(runs, made, name):
    assert runs[name].metrics["best_step_time_ms"].value == pytest.approx(1e3 * truth(name)["step_s"], rel=HOST_VARIES)
    rates = next(line for line in made.lines if line.row.key == "throughput")
    assert rates.readings[NAMES.index(name)].value == pytest.approx(truth(name)["samples_per_s"], rel=HOST_VARIES)


def test_workers_gain_as_much_as_predicted(made):
    change = made.changes[0]
    assert "data-loader-starves-gpu" in change.fixed
    assert change.predicted_gain_ms == pytest.approx(change.measured_gain_ms, rel=0.05)
    assert change.measured_gain_ms == pytest.approx(1e3 * (truth("baseline")["step_s"] - truth("workers")["step_s"]), rel=0.2)


def test_a_larger_batch_is_compared_per_sample_and_gains_as_predicted(made):
    change = made.changes[2]
    assert change.work == pytest.approx(256 / 32) and change.verdict == "faster"
    assert change.predicted_gain_ms == pytest.approx(change.measured_gain_ms, rel=0.1)
    assert change.after_ms == pytest.approx(1e3 * truth("batch")["step_s"] / 8, rel=HOST_VARIES)


def test_the_comparison_says_that_the_work_is_the_same(made):
    assert made.speedup == pytest.approx(truth("compiled")["samples_per_s"] / truth("baseline")["samples_per_s"], rel=0.2)
    assert words.title(made).endswith("for the same work, with other batches")


def test_a_faster_gpu_gains_nothing_if_the_loader_limits_the_run(runs):
    # 14 workers load 6,700 samples per second, which is 38 ms per batch. Compiling shortened the GPU's work from 37 to 26 ms,
    # and the step by 1.5.
    before, after = runs["batch"], runs["compiled"]
    limit = next(finding for finding in before.findings if finding.rule == "prefetch-queue-hid-the-loader")
    assert limit.severity == "info" and "a faster GPU alone gains hardly anything" in limit.title
    assert all(finding.predicted_step_ms is None for finding in before.findings)
    first = after.findings[0]
    assert (first.rule, first.severity) == ("prefetch-queue-hid-the-loader", "critical")
    assert "14 loader workers need" in first.title
    assert after.lead.best.feeding.low_ms < 1e3 * truth("compiled")["step_s"] < after.lead.best.feeding.high_ms
