"""Tests of a loader's disk reads in the first epoch, with batches and /proc files made by hand."""

from __future__ import annotations

import pytest

from sawtooth.ingest.loop.page_cache import bytes_read, first_read, room_for_files

MB, MS = 1_000_000, 1_000_000


def _epoch(at, *, disk, parent=1, epoch=1, workers=2, of=100, read=8 * MB, count=5):
    """Return the batches of two workers.

    Each has 4 samples of 2 MB and takes 40 ms, of which 8 ms are collating. ``disk`` of its bytes came from the disk.
    """
    head = {"workers": workers, "parent": parent, "room": 1e9}
    batch = {"n": 4, "wall": 40 * MS, "collate": 8 * MS, "read": read, "disk": disk, "epoch": epoch, "of": of}
    return [(head, [{**batch, "at": at + number} for number in range(count)]) for _ in range(workers)]


def test_reads_of_the_first_epoch_only():
    first = first_read(_epoch(100, disk=6 * MB))
    assert first.disk_share == pytest.approx(0.75) and first.sample_s == pytest.approx(0.008)  # (40 − 8) ms for 4
    assert (first.sample_bytes, first.samples, first.room_bytes) == (2 * MB, 100, 1e9)
    assert first.later_share is None and not first.is_over


def test_restarted_workers_begin_another_epoch():
    first = first_read([*_epoch(900, disk=0), *_epoch(100, disk=8 * MB)])  # Files are found in any order.
    assert (first.disk_share, first.later_share, first.later_ns, first.is_over) == (1.0, 0.0, 900, True)


def test_workers_that_stay_count_their_epochs():
    processes = _epoch(100, disk=8 * MB)
    for (_, batches), (_, later) in zip(processes, _epoch(900, disk=0, epoch=2), strict=True):
        batches.extend(later)
    assert first_read(processes).is_over


def test_each_rank_has_its_own_workers():
    both = first_read([*_epoch(100, disk=8 * MB), *_epoch(200, disk=4 * MB, parent=2)])
    assert both.later_share is None and both.disk_share == pytest.approx(0.75)


def test_reading_is_not_over_if_a_later_epoch_reads_from_disk():
    first = first_read([*_epoch(100, disk=8 * MB), *_epoch(900, disk=8 * MB)])
    assert (first.later_share, first.is_over) == (1.0, False)


def test_reading_is_not_over_if_all_came_from_the_cache():
    first = first_read([*_epoch(100, disk=0), *_epoch(900, disk=0)])
    assert (first.disk_share, first.is_over) == (0.0, False)


@pytest.mark.parametrize(
    "processes",
    [
        [],
        _epoch(1, disk=0, of=0),  # An iterable dataset has no length.
        _epoch(1, disk=9 * MB, read=4 * MB),  # Cached reads of mapped files are not counted.
        [*_epoch(1, disk=0), *_epoch(1, disk=0, of=10)],  # Two datasets in one process.
        [({"workers": 1, "room": 1e9}, [{"n": 4, "wall": 1, "collate": 0}])],  # A system without counters.
    ],
)
def test_uncounted_reads_are_not_reported(processes):
    assert first_read(processes) is None


def test_counters_of_the_kernel(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/io").write_text("rchar: 300\nwchar: 2\nread_bytes: 100\nwrite_bytes: 7\n")
    assert bytes_read(proc=tmp_path) == (300, 100)
    assert bytes_read("thread-self", tmp_path) is None


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({}, 4096 * 1024),
        ({"job/memory.max": "max", "job/memory.stat": ""}, 4096 * 1024),
        # 3,000,000 − 2,500,000 + 700,000 + 100,000 that files fill already
        ({"job/memory.max": "3000000", "job/memory.current": "2500000", "job/memory.stat": "active_file 700000\ninactive_file 100000\n"}, 1_300_000),
        ({"job/memory.max": "3000000", "job/memory.current": "3500000", "job/memory.stat": "active_file 0\ninactive_file 0\n"}, 0),
    ],
)  # fmt: skip
def test_memory_for_the_page_cache_respects_the_container(tmp_path, files, room):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 8192 kB\nMemFree: 10 kB\nMemAvailable: 4096 kB\n")
    (proc / "self/cgroup").write_text("0::/job\n")
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    assert room_for_files(proc, groups) == room
    assert room_for_files(tmp_path / "none", groups) is None


def test_a_container_of_an_older_kernel(tmp_path):
    group = tmp_path / "groups/memory/job"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemAvailable: 4096 kB\n")
    (tmp_path / "self/cgroup").write_text("4:memory:/job\n3:cpu:/job\n")
    texts = {"limit_in_bytes": "2000000", "usage_in_bytes": "1500000", "stat": "active_file 0\ntotal_active_file 200000\ntotal_inactive_file 0\n"}  # fmt: skip
    for name, text in texts.items():
        (group / f"memory.{name}").write_text(text)
    assert room_for_files(tmp_path, tmp_path / "groups") == 700_000
