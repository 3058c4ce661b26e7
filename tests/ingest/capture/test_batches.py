"""Tests of the loader times that the recorder measures.

The loader sleeps, or the files were written by hand.
"""

from __future__ import annotations

import json
import time
import zipfile

import msgspec
import pytest

from sawtooth.ingest.capture import batches
from sawtooth.ingest.capture.recorder import profile
from sawtooth.ingest.loop import batch_files
from sawtooth.ingest.loop.page_cache import bytes_read
from sawtooth.ingest.manifest import UserFacts
from tests.support.batch_files import FIRST, write_batches

PAUSE_S = 0.004


def test_time_per_sample_excludes_collating(tmp_path):
    # 4 samples take 48 ms, of which 8 ms are collating, so a sample takes 10 ms. On a core, a sample takes (22 − 6) ÷ 4 = 4 ms.
    write_batches(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000)] * 5])
    loading = batch_files.read_loading(tmp_path)
    cost, workers = loading.cost, loading.workers
    assert workers == 1
    assert (cost.wall_s, cost.cpu_s, cost.collate_s, cost.batch) == pytest.approx((0.010, 0.004, 0.008, 4))
    assert cost.error_s == pytest.approx(0)


def test_the_slowest_worker_counts_because_batches_are_delivered_in_turn(tmp_path):
    for pid, ms in ((1, 10), (2, 20), (3, 12)):
        write_batches(tmp_path, pid, 3, [FIRST, *[(1, ms * 1_000_000, 0, 0, 0)] * 5])
    loading = batch_files.read_loading(tmp_path)
    cost, workers = loading.cost, loading.workers
    assert (workers, cost.wall_s) == (3, pytest.approx(0.020))


def test_the_loader_with_most_batches_counts(tmp_path):
    write_batches(tmp_path, 1, 1, [FIRST, *[(8, 8_000_000, 0, 0, 0)] * 20])
    write_batches(tmp_path, 2, 1, [FIRST, *[(8, 80_000_000, 0, 0, 0)] * 4], dataset="test:10")
    assert batch_files.read_loading(tmp_path).cost.wall_s == pytest.approx(0.001)


def test_the_loader_of_the_reported_training_counts(tmp_path):
    for pid, ms, pin_ms in ((11, 10, 1), (21, 30, 4)):  # The workers of processes 10 and 20.
        write_batches(tmp_path, pid, 1, [FIRST, *[(1, ms * 1_000_000, 0, 0, 0)] * 5], parent=pid - 1)
        (tmp_path / f"pins-{pid - 1}.txt").write_text("1\n" + f"{pin_ms * 1_000_000}\n" * 5)
    for training, wall_s, pin_s in ((10, 0.010, 0.001), (20, 0.030, 0.004)):
        cost = batch_files.read_loading(tmp_path, training).cost
        assert (cost.wall_s, cost.pin_s) == pytest.approx((wall_s, pin_s))
    assert batch_files.read_loading(tmp_path, 99).cost.wall_s == pytest.approx(0.030), (
        "workers of a fork server do not name their training"
    )


@pytest.mark.parametrize("text", ["", "not json\n{}\n{}", '{"dataset": "a:1", "workers": 2}\n{"n": 4}\n'])
def test_an_incomplete_or_short_file_is_ignored(tmp_path, text):
    (tmp_path / "batches-1.jsonl").write_text(text)
    assert batch_files.read_loading(tmp_path) is None


def test_a_batch_without_a_sample_gives_no_sample_time(tmp_path):
    """An iterable dataset may end with an empty batch, and a sampler may return one."""
    write_batches(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000), (0, 9_000_000, 0, 0, 0)] * 5])
    cost = batch_files.read_loading(tmp_path).cost
    assert (cost.wall_s, cost.batch) == (pytest.approx(0.010), 4)


class Pauses:
    def __init__(self, count=64):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(PAUSE_S)
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_timed_in_the_fetching_process(tmp_path, workers):
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    unwatched = fetch._MapDatasetFetcher.fetch
    count = 256  # So many that a slow first batch hardly changes a worker's mean.
    end = batches.watch(fetch, tmp_path)
    try:
        got = [int(i) for batch in data.DataLoader(Pauses(count), batch_size=8, num_workers=workers) for i in batch]
    finally:
        end()
    assert got == list(range(count)) and fetch._MapDatasetFetcher.fetch is unwatched
    loading = batch_files.read_loading(tmp_path)
    cost, of_workers = loading.cost, loading.workers
    assert of_workers == workers and cost.batch == 8
    assert cost.wall_s >= PAUSE_S  # A sleep is never shorter.
    assert cost.cpu_s < PAUSE_S  # A sleep needs no core.


class Files:
    """A dataset in which each sample reads a file of 100 kB."""

    def __init__(self, folder):
        self.folder = folder
        for index in range(32):
            (folder / f"{index}.bin").write_bytes(bytes(100_000))

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return len((self.folder / f"{index}.bin").read_bytes())


@pytest.mark.skipif(bytes_read() is None, reason="this system does not count what a process reads")
@pytest.mark.parametrize(("workers", "stay"), [(0, False), (2, False), (2, True)])
def test_reads_of_each_epoch_are_counted(tmp_path, workers, stay):
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    (tmp_path / "files").mkdir()
    end = batches.watch(fetch, tmp_path)
    try:
        loader = data.DataLoader(Files(tmp_path / "files"), batch_size=4, num_workers=workers, persistent_workers=stay)
        for _ in range(2):
            assert sum(len(batch) for batch in loader) == 32
    finally:
        end()
    first = batch_files.read_loading(tmp_path).first_epoch
    assert first.samples == 32 and first.room_bytes > 0
    assert 100_000 <= first.sample_bytes < 110_000  # The file, and reads by Python.
    assert first.later_share is not None  # A second epoch was found.
    assert first.disk_share < 1  # Files that were just written are in memory.


def test_write_errors_never_reach_the_training(tmp_path):
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    end = batches.watch(fetch, tmp_path / "gone")
    try:
        assert len(list(data.DataLoader(Pauses(), batch_size=32))) == 2
    finally:
        end()


@pytest.mark.parametrize("asked", [True, False])
def test_the_helper_times_its_loader_unless_disabled(tmp_path, asked):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(Pauses(), batch_size=1, num_workers=1)
    with profile(tmp_path / "run", sampler=False, skip=2, seconds=0.01, warmup=1, active=2, time_batches=asked) as capture:
        for _ in loader:
            capture.step()
    with zipfile.ZipFile(tmp_path / "run.sawtooth") as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
    assert ("loader_sample_ms" in run["facts"]) is asked
    if asked:
        facts = msgspec.convert(run["facts"], UserFacts)
        assert (facts.loader_workers, facts.loader_batch) == (1, 1)
        assert facts.loader_sample_ms >= 1e3 * PAUSE_S
