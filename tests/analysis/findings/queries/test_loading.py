"""Tests of the number of workers that can feed a step, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from sawtooth.analysis.findings.loader_limits import loader_limit
from sawtooth.analysis.findings.loading.workers import loader_changes, workers_for
from sawtooth.analysis.findings.queries.loading import (
    best_workers,
    shortest_loading_ms,
    workers_keep_up,
    workers_needed,
    workers_to_begin_with,
)
from sawtooth.analysis.run.model import CodeChange
from sawtooth.ingest.manifest import UserFacts


def facts(cpu_ms: float, seen: float = 2) -> UserFacts:
    """Return facts of samples of 10 ms in batches of 32 on 16 cores, with no time for collating."""
    return UserFacts(
        loader_workers=seen, loader_cores=16, loader_batch=32, loader_sample_ms=10, loader_sample_cpu_ms=cpu_ms,
        loader_sample_error_ms=0, loader_collate_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cpu_ms", "step_ms", "said"),
    [
        # 500 samples per second are needed. Each worker loads 100, and 90 at least.
        (0.0, 64, "So 5 workers are enough for a step of 64 ms. With 6, slower samples are covered as well."),
        # Workers that share cores load 82 samples per second each, and 58.5 at least.
        (10, 64, "So 7 workers are enough for a step of 64 ms. With 9, slower samples are covered as well."),
        # 1,185 samples per second are needed, of at most 1,230.
        (10, 27, "So 15 workers are enough for a step of 27 ms. This is not certain on 16 cores."),
        # The training has one of the cores.
        (10, 25, "No number of workers on 16 cores is enough for a step of 25 ms, which needs 1,280 samples/s."),
        (10, 16, "No number of workers on 16 cores is enough for a step of 16 ms, which needs 2,000 samples/s."),
        (0.0, 400, "So 1 worker is enough for a step of 400 ms."),
    ],
)
def test_number_of_workers_for_a_step(cpu_ms, step_ms, said):
    assert workers_needed(facts(cpu_ms), step_ms).endswith(said)


def test_a_thread_that_pins_too_slowly_is_named():
    pinned = msgspec.structs.replace(facts(10), loader_pin_ms=36)
    said = workers_needed(pinned, 30)
    assert "pins the batches of all workers and takes 36 ms for each, longer than the step" in said and "uint8" in said
    assert "workers are enough" in workers_needed(pinned, 50)


def test_more_workers_are_not_advised_if_the_pinning_thread_is_the_limit():
    # 12 workers give 1,200 samples a second, the thread 32 in 36 ms: 889
    pinned = msgspec.structs.replace(facts(10, seen=12), loader_pin_ms=36)
    title, advice = loader_limit(pinned)
    assert (
        title == ": one thread pins the batches of all workers, 36 ms per batch"
        and "uint8" in advice.how
        and "more workers do not help" in advice.how
    )
    assert "computes" in loader_limit(msgspec.structs.replace(pinned, loader_workers=4))[0]  # 400
    assert shortest_loading_ms(pinned) == pytest.approx(36)


def test_no_step_is_shorter_than_the_possible_workers_can_feed():
    assert shortest_loading_ms(facts(0)) == pytest.approx(32 / 6400 * 1e3)  # 64 workers for 16 cores, 100 a second each
    assert shortest_loading_ms(facts(10)) == pytest.approx(
        32 / (1500 * 0.82) * 1e3
    )  # 15 cores, shared, and one for the training
    assert shortest_loading_ms(UserFacts()) == 0


def test_predicted_step_follows_the_useful_number_of_workers():
    more = best_workers(facts(10))
    assert more is not None and more.workers == 15 and more.ms == pytest.approx(32 / 1230 * 1e3)
    # the interval of the model, by the workers' own timing
    assert more.edit.loader_limit_low_ms == pytest.approx(32 / (1500 * 1.1) * 1e3)
    assert more.edit.loader_limit_high_ms == pytest.approx(32 / (1500 * 0.65 * 0.9) * 1e3)
    assert best_workers(facts(10, seen=15)) is None and best_workers(UserFacts()) is None


@pytest.mark.parametrize(
    ("known", "rest_ms", "workers"),
    [
        (facts(0, seen=0), 20, 16),  # Samples that wait: 1,600 per second.
        # One worker per core, except one core. This number does not suffice, but it is the maximum.
        (facts(10, seen=0), 20, 15),
        (facts(10, seen=0), 64, 7),
        (UserFacts(loader_cores=16), 20, 15),  # One process takes 300 ms, and nothing was timed.
        (UserFacts(), 20, 8),
        (facts(0, seen=0), None, 15),
    ],
)
def test_number_of_workers_for_a_training_that_loads_its_own_batches(known, rest_ms, workers):
    run = SimpleNamespace(manifest=SimpleNamespace(facts=known), telemetry=SimpleNamespace(host=None))
    assert workers_to_begin_with(SimpleNamespace(run=run), 300, rest_ms) == workers


UNTIMED = UserFacts(loader_workers=2, loader_cores=16)


@pytest.mark.parametrize(
    ("known", "step_ms", "after"),
    [
        (facts(10), 64, "num_workers=9)"),  # 500 samples per second, at least 58.5 from each worker
        (facts(0.0), 64, "num_workers=6)"),  # at least 90 from each worker
        (facts(10), 16, "num_workers=16)"),  # No number is enough, so one worker per core.
        (facts(10, seen=14), 64, "num_workers=15)"),  # The step waits for 14, so 9 cannot be enough.
        (facts(1, seen=14), 16, "num_workers=24)"),  # at least 84.4 from each worker; workers that wait share cores
        (UNTIMED, 50, "num_workers=12)"),  # To load in a sixth of the run's 300 ms, 6 times 2 workers are needed.
        (UNTIMED, 200, "num_workers=4)"),
        (UNTIMED, 10, "num_workers=16)"),
        (UNTIMED, None, "num_workers=4)"),
        (facts(10, seen=16), 64, "self.decoded[i]"),
        (msgspec.structs.replace(facts(10, seen=12), loader_pin_ms=36), 64, "uint8"),
        (UserFacts(), 64, "num_workers=12)"),
    ],
)
def test_the_suggested_code_sets_enough_workers_or_makes_samples_cheaper(known, step_ms, after):
    run = SimpleNamespace(manifest=SimpleNamespace(facts=known), telemetry=SimpleNamespace(host=None))
    typical = CodeChange(
        "PyTorch",
        "DataLoader(dataset$seen)",
        "DataLoader(dataset, num_workers=$workers)",
        slot_defaults=(("workers", "12"), ("seen", "")),
    )
    workers = workers_for(SimpleNamespace(run=run, step_ms=300.0), step_ms)
    (change,) = loader_changes(known, (typical,), workers)
    assert after in change.after


def test_without_timed_workers_nothing_is_reported():
    assert workers_needed(UserFacts(), 64) == "" and workers_needed(facts(1), None) == ""


def test_waiting_and_computing_of_a_sample_are_distinguished():
    assert "waits for 90 % of its time" in loader_limit(facts(1))[0] and "WebDataset" in loader_limit(facts(1))[1].how
    assert "computes for 100 % of its time" in loader_limit(facts(10))[0] and "DALI" in loader_limit(facts(10))[1].how
    assert loader_limit(facts(6.5)) is None and loader_limit(UserFacts()) is None


def test_workers_that_are_fast_enough_are_not_blamed():
    # Two workers give 200 samples per second, 180 at least: 32 samples in 178 ms
    assert workers_keep_up(facts(10), 180) and not workers_keep_up(facts(10), 175)
    assert not workers_keep_up(facts(10, seen=0), 1000) and not workers_keep_up(UserFacts(), 1000)
