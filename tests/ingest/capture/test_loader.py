"""Tests of the loader's benchmark: timing of samples, the model of workers, and the report."""

from __future__ import annotations

import pytest

from sawtooth.ingest.capture import loader
from sawtooth.ingest.capture.loader import limit_sentences, report, time_samples
from sawtooth.ingest.loop.loading import SampleCost, least_workers, pinning_limits, predict

READS = SampleCost(wall_s=0.010, error_s=0.0, cpu_s=0.001, collate_s=0.0, batch=32)  # 9 of 10 ms are waits
COMPUTES = SampleCost(wall_s=0.010, error_s=0.0, cpu_s=0.010, collate_s=0.0, batch=32)


@pytest.mark.parametrize(
    ("cost", "workers", "cores", "per_s"),
    [
        (READS, 0, 4, 100),
        (READS, 8, 4, 800),  # Workers that wait need no core.
        (READS, 100, 4, 0.82 * 3000),  # 3 cores ÷ 1 ms, because the training uses the fourth core
        (COMPUTES, 2, 4, 200),
        (COMPUTES, 8, 4, 0.82 * 300),  # 3 cores ÷ 10 ms
        (COMPUTES, 8, 1, 0.82 * 50),  # Half of the only core.
        (SampleCost(0.010, 0.0, 0.010, 0.064, 32), 1, 4, 1 / 0.012),  # Collating takes 2 ms per sample.
    ],
)
def test_workers_wait_side_by_side_and_share_the_cores(cost, workers, cores, per_s):
    rate = predict(cost, workers, cores)
    assert rate.value == pytest.approx(per_s)
    assert rate.low <= rate.value <= rate.high


@pytest.mark.parametrize(
    ("cost", "workers", "seen", "middle", "low", "high"),
    [
        (COMPUTES, 2, 1, 200, 2 * 65 * 0.9, 220),  # Each worker probably has a core.
        (COMPUTES, 4, 1, 4 * 82, 4 * 65 * 0.9, 440),  # Each worker has 0.82 or 0.65 of a core.
        (COMPUTES, 4, 3, 400, 4 * 100 * 0.65 / 0.82 * 0.9, 440),  # The timed workers shared cores.
        (COMPUTES, 4, 4, 400, 360, 440),
        (COMPUTES, 2, 4, 200 / 0.82, 180, 200 / 0.65 * 1.1),  # The timed workers shared cores, but these have a core each.
        (COMPUTES, 3, 4, 300, 270, 300 * 0.82 / 0.65 * 1.1),
        (COMPUTES, 2, 0, 200, 2 * 65 * 0.9, 200 / 0.8 * 1.1),  # Samples were timed in the training, between steps.
        (READS, 4, 1, 400, 4 / (0.009 + 0.001 / 0.65) * 0.9, 440),  # A tenth of the time is on a core.
    ],
)
def test_a_prediction_for_more_workers_includes_sharing_of_cores(cost, workers, seen, middle, low, high):
    rate = predict(cost, workers, 5, seen)  # One of the 5 cores belongs to the training.
    assert (rate.value, rate.low, rate.high) == pytest.approx((middle, low, high))


def test_one_thread_pins_the_batches_of_all_workers():
    # One thread pins 32 samples in 40 ms, so no number of workers gives more than 800 samples per second.
    pinned = SampleCost(0.010, 0.0, 0.0, 0.0, 32, pin_s=0.040)
    assert predict(pinned, 4, 16).value == pytest.approx(400)
    assert predict(pinned, 12, 16).value == predict(pinned, 64, 16).value == pytest.approx(800)
    assert predict(pinned, 0, 16).value == pytest.approx(32 / (0.32 + 0.040))


def test_the_pinning_thread_is_the_limit_if_the_workers_deliver_more():
    pinned = SampleCost(
        0.010, 0.0, 0.0, 0.0, 32, pin_s=0.040
    )  # Pinning allows 800 samples per second, and each worker gives 100.
    assert pinning_limits(pinned, 8, 16) and pinning_limits(pinned, 12, 16)
    assert not pinning_limits(pinned, 7, 16) and not pinning_limits(COMPUTES, 12, 16) and not pinning_limits(pinned, 0, 16)


# Measured on an H200's host of 16 virtual cores on 22 November 2026, with JPEG decoding and with a wait of 6 ms per sample.
# Columns: workers; samples per second of the loader; and two times of its workers in ms: a sample by the wall clock, and
# collating a batch of 32.
DECODES = {
    1: (252, 3.470, 15.64),
    2: (526, 3.443, 13.13),
    4: (765, 4.161, 16.36),
    8: (1796, 4.102, 18.5),
    12: (2684, 4.061, 16.98),
    14: (2823, 0, 0),
}
WAITS = {1: (161, 6.148, 1.641), 2: (323, 6.148, 1.459), 4: (578, 6.15, 1.46), 8: (1229, 6.147, 1.432), 14: (2477, 0, 0)}


@pytest.mark.parametrize(("rows", "computes"), [(DECODES, 1.0), (WAITS, 0.015)])
def test_times_of_some_workers_predict_the_rate_of_others(rows, computes):
    for seen, (_, wall_ms, collate_ms) in list(rows.items())[:-1]:
        cost = SampleCost(wall_ms / 1e3, 0.0, computes * wall_ms / 1e3, collate_ms / 1e3, 32)
        for workers, (measured, *_) in rows.items():
            assert predict(cost, workers, 16, seen).value == pytest.approx(measured, rel=0.15), (seen, workers)


def test_the_smallest_sufficient_number_of_workers_is_certain_to_suffice():
    assert least_workers(READS, 640, 4, 64) == 8  # 7 give 700, at least 608; 8 give 800, at least 683
    assert least_workers(COMPUTES, 500, 4, 64) is None


@pytest.mark.parametrize(
    ("cores", "rows"),
    [
        # An H200's host limited to 8 cores, 23 November 2026. Columns: workers; samples per second before and after; and
        # three times in ms: a sample by the wall clock, a sample on a core, and collating a batch of 32.
        (8, {2: (720, 680, 2.838, 2.856, 4.286), 4: (1292, 1234, 2.877, 2.902, 4.141), 8: (2245, 2061, 3.126, 3.054, 4.422), 14: (2142, 2278, 3.003, 2.709, 4.351)}),
    ],
)  # fmt: skip
def test_one_core_is_left_for_the_training(cores, rows):
    for seen, (_, _, wall, cpu, collate) in rows.items():
        for workers, (before, after, *_) in rows.items():
            rate = predict(SampleCost(wall / 1e3, 0.0, cpu / 1e3, collate / 1e3, 32), workers, cores, seen)
            least, most = sorted((before, after))
            assert 0.85 * least <= rate.value <= 1.15 * most and rate.low <= most and rate.high >= least, (seen, workers)


def test_an_uncertain_sample_widens_the_interval():
    sure, unsure = predict(READS, 4, 4), predict(SampleCost(0.010, 0.001, 0.001, 0.0, 32), 4, 4)
    assert unsure.high - unsure.low > sure.high - sure.low


def test_the_limit_is_named():
    assert "cores are the limit" in limit_sentences(COMPUTES) and "reading is the limit" in limit_sentences(READS)
    assert "limit the loader together" in limit_sentences(SampleCost(0.010, 0.0, 0.0065, 0.0, 32))
    slow_collate = SampleCost(2e-6, 0.0, 2e-6, 0.0057, 32)
    assert limit_sentences(slow_collate) == "Collating takes 5.7 ms of the 5.76 ms for a batch. Vectorise the collate function."


class Clock:
    wall = cpu = 0.0


class Loader:
    """A loader whose samples take 4 ms on a core and 6 ms of reading, or 60 ms for the first read.

    Collating a batch takes 8 ms.
    """

    def __init__(self, clock):
        self.clock, self.seen = clock, set()
        self.dataset = self
        self.batch_sampler = [[4 * i + k for k in range(4)] for i in range(200)]

    def __getitem__(self, index):
        self.clock.wall += 0.004 + (0.006 if index in self.seen else 0.060)
        self.clock.cpu += 0.004
        self.seen.add(index)
        return index

    def collate_fn(self, samples):
        assert len(samples) == 4
        self.clock.wall += 0.008


def test_a_sample_is_timed_cold_and_warm_with_its_cpu_share():
    clock = Clock()
    cost = time_samples(Loader(clock), lambda: clock.wall, lambda: clock.cpu)
    assert (cost.wall_s, cost.cpu_s, cost.collate_s, cost.first_s) == pytest.approx((0.010, 0.004, 0.008, 0.064))
    assert (cost.batch, cost.error_s) == (4, pytest.approx(0.0, abs=1e-9))


def test_the_report_states_the_workers_that_feed_the_step():
    text = "\n".join(report(READS, {0: 98.0, 8: 760.0}, 4, 50.0))
    assert "A step of 50 ms needs 640 samples/s. 8 workers deliver this." in text
    assert "      8          800 (683 to 880)        760" in text
    assert "looks like a wait for a disk" in "\n".join(report(READS, {}, 4, None, load=17.0))


@pytest.mark.parametrize("name", ["no.such:thing", "json:dumps_not", "json:JSONDecoder"])
def test_an_argument_that_is_not_a_loader_is_an_error(name, capsys):
    assert loader.main([name]) == 2
    assert "sawtooth loader: " in capsys.readouterr().err
