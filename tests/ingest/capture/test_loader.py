"""The loader's benchmark: what the model says of workers by arithmetic, how a sample is timed, and what is said of it."""

from __future__ import annotations

import pytest

from sawtooth.ingest.capture import loader
from sawtooth.ingest.capture.loader import limit_of, report, time_samples
from sawtooth.ingest.loading import SampleCost, least_workers, predict

READS = SampleCost(wall_s=0.010, error_s=0.0, cpu_s=0.001, collate_s=0.0, batch=32)  # 9 of 10 ms are a wait
COMPUTES = SampleCost(wall_s=0.010, error_s=0.0, cpu_s=0.010, collate_s=0.0, batch=32)


@pytest.mark.parametrize(
    ("cost", "workers", "cores", "per_s"),
    [
        (READS, 0, 4, 100),
        (READS, 8, 4, 800),  # workers that wait need no core
        (READS, 100, 4, 4000),  # 4 cores ÷ 1 ms
        (COMPUTES, 2, 4, 200),
        (COMPUTES, 8, 4, 400),  # 4 cores ÷ 10 ms
        (SampleCost(0.010, 0.0, 0.010, 0.064, 32), 1, 4, 1 / 0.012),  # and 2 ms a sample to collate
    ],
)
def test_workers_wait_side_by_side_and_share_the_cores(cost, workers, cores, per_s):
    rate = predict(cost, workers, cores)
    assert rate.value == pytest.approx(per_s)
    assert rate.high == pytest.approx(1.1 * per_s)


@pytest.mark.parametrize(
    ("cost", "workers", "seen", "share"),
    [
        (COMPUTES, 1, 1, 0.9),
        (COMPUTES, 4, 1, 0.9 * 0.65),  # each may share its core with another
        (COMPUTES, 4, 4, 0.9),  # as they did when they were timed
        (READS, 4, 1, 0.9 * 0.965),  # a tenth of the time is on a core
    ],
)
def test_more_workers_than_were_timed_may_share_cores(cost, workers, seen, share):
    rate = predict(cost, workers, 4, seen)
    assert rate.low == pytest.approx(share * rate.value)


def test_the_smallest_number_that_feeds_is_one_that_does_so_for_sure():
    assert least_workers(READS, 640, 4, 64) == 8  # 7 give 700, at least 608; 8 give 800, at least 695
    assert least_workers(COMPUTES, 500, 4, 64) is None


def test_an_uncertain_sample_widens_the_interval():
    sure, unsure = predict(READS, 4, 4), predict(SampleCost(0.010, 0.001, 0.001, 0.0, 32), 4, 4)
    assert unsure.high - unsure.low > sure.high - sure.low


def test_what_limits_is_named():
    assert "cores are the limit" in limit_of(COMPUTES) and "reading is the limit" in limit_of(READS)
    assert "both count" in limit_of(SampleCost(0.010, 0.0, 0.0065, 0.0, 32))


class Clock:
    wall = cpu = 0.0


class Loader:
    """Samples of 4 ms on a core and 6 ms of reading, which the first time takes 60 ms; a batch is put together in 8 ms."""

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


def test_a_sample_is_timed_cold_and_warm_with_its_share_of_a_core():
    clock = Clock()
    cost = time_samples(Loader(clock), lambda: clock.wall, lambda: clock.cpu)
    assert (cost.wall_s, cost.cpu_s, cost.collate_s, cost.first_s) == pytest.approx((0.010, 0.004, 0.008, 0.064))
    assert (cost.batch, cost.error_s) == (4, pytest.approx(0.0, abs=1e-9))


def test_the_report_says_what_feeds_the_step():
    text = "\n".join(report(READS, {0: 98.0, 8: 760.0}, 4, 50.0))
    assert "A step of 50 ms needs 640 samples/s: 8 workers feed it." in text
    assert "      8          800 (695 to 880)        760" in text
    assert "cannot be told apart" in "\n".join(report(READS, {}, 4, None, load=17.0))


@pytest.mark.parametrize("name", ["no.such:thing", "json:dumps_not", "json:JSONDecoder"])
def test_what_is_no_loader_is_told(name, capsys):
    assert loader.main([name]) == 2
    assert "sawtooth loader: " in capsys.readouterr().err
