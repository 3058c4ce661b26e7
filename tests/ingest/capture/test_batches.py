"""Tests of the batch times that the loader's processes measure.

They use a loader that pauses for a known time, and files written by hand.
"""

from __future__ import annotations

import functools
import json
import threading
import time
import zipfile
from types import SimpleNamespace

import msgspec
import pytest

from sawtooth.analysis.findings.loader_limits import cheaper_batch, limited_by, stage_of
from sawtooth.ingest.capture import batches
from sawtooth.ingest.capture.recorder import profile
from sawtooth.ingest.loop import batch_files
from sawtooth.ingest.loop.page_cache import bytes_read
from sawtooth.ingest.manifest import UserFacts

PAUSE_S = 0.004


def _file(folder, pid, workers, lines, dataset="train:100", parent=None):
    text = [json.dumps({"dataset": dataset, "workers": workers, "parent": parent})]
    text += [json.dumps(dict(zip(("n", "wall", "cpu", "collate", "collate_cpu"), line, strict=True))) for line in lines]
    (folder / f"batches-{pid}.jsonl").write_text("\n".join(text) + "\n")


FIRST = (4, 900_000_000, 1, 0, 0)  # imports, a cold cache


def test_time_per_sample_excludes_collating(tmp_path):
    # 4 samples in 48 ms, 8 ms of them collating: 10 ms each; on a core (22 − 6) ÷ 4 = 4 ms
    _file(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000)] * 5])
    loading = batch_files.loading_of(tmp_path)
    cost, workers = loading.cost, loading.workers
    assert workers == 1
    assert (cost.wall_s, cost.cpu_s, cost.collate_s, cost.batch) == pytest.approx((0.010, 0.004, 0.008, 4))
    assert cost.error_s == pytest.approx(0)


def test_the_slowest_worker_counts_because_batches_are_delivered_in_turn(tmp_path):
    for pid, ms in ((1, 10), (2, 20), (3, 12)):
        _file(tmp_path, pid, 3, [FIRST, *[(1, ms * 1_000_000, 0, 0, 0)] * 5])
    loading = batch_files.loading_of(tmp_path)
    cost, workers = loading.cost, loading.workers
    assert (workers, cost.wall_s) == (3, pytest.approx(0.020))


def test_the_loader_with_most_batches_counts(tmp_path):
    _file(tmp_path, 1, 1, [FIRST, *[(8, 8_000_000, 0, 0, 0)] * 20])
    _file(tmp_path, 2, 1, [FIRST, *[(8, 80_000_000, 0, 0, 0)] * 4], dataset="test:10")
    assert batch_files.loading_of(tmp_path).cost.wall_s == pytest.approx(0.001)


def test_the_loader_of_the_reported_training_counts(tmp_path):
    for pid, ms, pin_ms in ((11, 10, 1), (21, 30, 4)):  # the workers of processes 10 and 20
        _file(tmp_path, pid, 1, [FIRST, *[(1, ms * 1_000_000, 0, 0, 0)] * 5], parent=pid - 1)
        (tmp_path / f"pins-{pid - 1}.txt").write_text("1\n" + f"{pin_ms * 1_000_000}\n" * 5)
    for training, wall_s, pin_s in ((10, 0.010, 0.001), (20, 0.030, 0.004)):
        cost = batch_files.loading_of(tmp_path, training).cost
        assert (cost.wall_s, cost.pin_s) == pytest.approx((wall_s, pin_s))
    assert batch_files.loading_of(tmp_path, 99).cost.wall_s == pytest.approx(0.030), "workers of a fork server name no training"


@pytest.mark.parametrize("text", ["", "not json\n{}\n{}", '{"dataset": "a:1", "workers": 2}\n{"n": 4}\n'])
def test_an_incomplete_or_short_file_is_ignored(tmp_path, text):
    (tmp_path / "batches-1.jsonl").write_text(text)
    assert batch_files.loading_of(tmp_path) is None


def test_a_batch_without_a_sample_gives_no_sample_time(tmp_path):
    """An iterable dataset may end with an empty batch, and a sampler may return one."""
    _file(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000), (0, 9_000_000, 0, 0, 0)] * 5])
    cost = batch_files.loading_of(tmp_path).cost
    assert (cost.wall_s, cost.batch) == (pytest.approx(0.010), 4)


class Pauses:
    def __init__(self, count=64):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(PAUSE_S)
        return index


def test_fetchers_are_unchanged_if_pinning_cannot_be_timed(tmp_path, monkeypatch):
    utils = pytest.importorskip("torch.utils.data._utils")
    before = [getattr(utils.fetch, name).fetch for name in batches.FETCHERS]
    monkeypatch.delattr(utils.pin_memory, "pin_memory")
    with pytest.raises(AttributeError):
        batches.watch_loaders(tmp_path)
    assert [getattr(utils.fetch, name).fetch for name in batches.FETCHERS] == before


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_timed_in_the_fetching_process(tmp_path, workers):
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    unwatched = fetch._MapDatasetFetcher.fetch
    count = 256  # so many that what a busy machine's new process does first weighs little in a worker's mean
    end = batches.watch(fetch, tmp_path)
    try:
        got = [int(i) for batch in data.DataLoader(Pauses(count), batch_size=8, num_workers=workers) for i in batch]
    finally:
        end()
    assert got == list(range(count)) and fetch._MapDatasetFetcher.fetch is unwatched
    loading = batch_files.loading_of(tmp_path)
    cost, of_workers = loading.cost, loading.workers
    assert of_workers == workers and cost.batch == 8
    assert cost.wall_s >= PAUSE_S  # a sleep is never shorter
    assert cost.cpu_s < PAUSE_S  # and takes no core


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
    first = batch_files.loading_of(tmp_path).first_epoch
    assert first.samples == 32 and first.room_bytes > 0
    assert 100_000 <= first.sample_bytes < 110_000  # the file, and what Python reads beside it
    assert first.later_share is not None  # the second epoch was distinguished from the first
    assert first.disk_share < 1  # just written, they are in memory


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


def test_pinning_is_timed_once_per_batch(tmp_path):
    def pin_memory(data, device=None):
        time.sleep(0.002)
        return [module.pin_memory(part) for part in data] if isinstance(data, list) else data

    module = SimpleNamespace(pin_memory=pin_memory)
    end = batches.watch_pinning(module, tmp_path)
    for _ in range(5):
        assert module.pin_memory([1, [2, 3]]) == [1, [2, 3]]
    end()
    assert module.pin_memory is pin_memory
    _file(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000)] * 5])
    loading = batch_files.loading_of(tmp_path)
    cost = loading.cost
    assert 0.010 <= cost.pin_s < 0.1  # five parts of 2 ms: a list, a list in it and three numbers
    assert len((next(tmp_path.glob("pins-*.txt"))).read_text().splitlines()) == 5
    assert batch_files.facts_of(loading)["loader_pin_ms"] == pytest.approx(1e3 * cost.pin_s)


@pytest.mark.parametrize(("since_ms", "pin_ms"), [(6, 16), (40, 20)])
def test_time_of_the_pinning_thread_between_batches_counts(tmp_path, since_ms, pin_ms):
    """The pinning thread's time between two batches counts up to the time of pinning itself.

    There are 10 ms of pinning, and 6 ms between two batches that were ready. If none was ready, the thread may have
    waited.
    """
    lines = [f"10000000 {since_ms * 1_000_000 + wait * 1_000_000}" for wait in range(20)]
    (tmp_path / "pins-1.txt").write_text("\n".join(["90000000 0", *lines, ""]))
    assert 1e3 * batch_files._pin_s(tmp_path) == pytest.approx(pin_ms, abs=2.1)


def test_the_first_batch_of_a_pinning_thread_has_no_predecessor(tmp_path):
    """The first batch of a pinning thread has no time since another batch.

    Each epoch has its own thread. If the first batch had a time of 0 ns, it would be the shortest wait of pinning.
    """
    module = SimpleNamespace(pin_memory=lambda data, device=None: data)
    batches.watch_pinning(module, tmp_path)
    for _ in range(3):
        epoch = threading.Thread(target=lambda: [module.pin_memory(1), module.pin_memory(2)])
        epoch.start()
        epoch.join()
    (file,) = tmp_path.glob("pins-*.txt")
    assert [len(line.split()) for line in file.read_text().splitlines()] == [1, 2, 1, 2, 1, 2]


def test_a_pinning_error_is_raised_only_in_the_training(tmp_path):
    module = SimpleNamespace(pin_memory=lambda data, device=None: [][0])
    batches.watch_pinning(module, tmp_path / "gone")
    with pytest.raises(IndexError):
        module.pin_memory(1)


class Rows:
    """Rows of lengths 1 to 4 in turn, each made in ``sample_s``."""

    def __init__(self, sample_s):
        self.sample_s = sample_s

    def __len__(self):
        return 96

    def __getitem__(self, index):
        if self.sample_s:  # to sleep for no time gives the core away
            time.sleep(self.sample_s)
        return {"x": [1.0] * (index % 4 + 1), "label": index}


class Stream:
    """The same rows as an iterable dataset, which its workers divide."""

    def __init__(self, sample_s):
        self.rows = Rows(sample_s)

    def __iter__(self):
        info = pytest.importorskip("torch.utils.data").get_worker_info()
        first, of = (info.id, info.num_workers) if info is not None else (0, 1)
        return (self.rows[index] for index in range(first, 96, of))


class Padded:
    """A callable that collates rows in ``seconds``, padded to the longest."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, rows):
        time.sleep(self.seconds)
        longest = max(len(row["x"]) for row in rows)
        torch = pytest.importorskip("torch")
        return {"x": torch.tensor([row["x"] + [0.0] * (longest - len(row["x"])) for row in rows])}


def _timed(folder, make):
    """Return the facts of a loader that ``make`` makes of torch.utils.data, one epoch of which is loaded."""
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    end = batches.watch(fetch, folder)
    try:
        assert len(list(make(data))) == 12
    finally:
        end()
    return msgspec.convert(batch_files.facts_of(batch_files.loading_of(folder)), UserFacts)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("sample_s", "collate_s", "stage", "said"),
    [(0.0, 0.02, "collate", "collating takes"), (0.004, 0.0, "sample", "a sample waits")],
)
def test_the_slowest_stage_is_the_limit(tmp_path, workers, sample_s, collate_s, stage, said):
    facts = _timed(
        tmp_path,
        lambda data: data.DataLoader(
            data.Subset(Rows(sample_s), range(96)), batch_size=8, num_workers=workers, collate_fn=Padded(collate_s)
        ),
    )
    assert stage_of(facts) == stage
    title, advice = limited_by(facts)
    assert said in title and ("Vectorise" in advice.sentence) is (stage == "collate")
    assert ("Padded.__call__" if stage == "collate" else "Rows.__getitem__") in title and "test_batches.py:" in title
    assert facts.loader_padding == pytest.approx(1 - 2.5 / 4)  # lengths 1 to 4, padded to 4
    assert ("groups samples of similar length" in advice.sentence) is (stage == "collate")
    assert ("order" in cheaper_batch(facts).after) is (stage == "collate")


@pytest.mark.parametrize("workers", [0, 2])
def test_collating_of_an_iterable_dataset_is_separated_from_its_samples(tmp_path, workers):
    facts = _timed(
        tmp_path,
        lambda data: data.DataLoader(
            type("Lines", (data.IterableDataset,), {"__iter__": lambda _: iter(Stream(0.0))})(),
            batch_size=8, num_workers=workers, collate_fn=Padded(0.02),
        ),
    )  # fmt: skip
    assert stage_of(facts) == "collate" and facts.loader_collate_ms >= 20
    assert (
        facts.loader_sample_code is not None and "test_batches.py" in facts.loader_sample_code
    )  # PyTorch's base class has a __getitem__ too


def test_a_sampler_that_groups_lengths_gives_no_padding(tmp_path):
    grouped = [[4 * row + length for row in range(first, first + 8)] for length in range(4) for first in (0, 8, 16)]
    facts = _timed(
        tmp_path, lambda data: data.DataLoader(Rows(0.0), batch_sampler=grouped, collate_fn=functools.partial(Padded(0.02)))
    )
    _, advice = limited_by(facts)
    assert facts.loader_padding == 0 and "Vectorise" in advice.sentence and "padding" not in advice.sentence


@pytest.mark.parametrize(
    ("samples", "batch", "padding"),
    [
        ([{"x": [1, 2]}, {"x": [1, 2, 3, 4]}], {"x": [[1, 2, 0, 0], [1, 2, 3, 4]]}, 0.25),
        ([{"x": [1, 2]}, {"x": [1, 2, 3, 4]}], {"x": [1, 2, 1, 2, 3, 4]}, 0),  # packed without padding
        ([([1.0], 3), ([2.0], 4)], [[1.0], [2.0]], 0),
        ([1, 2, 3], [1, 2, 3], 0),
        ([[1, 2], [1, 2, 3, 4]], [[1, 2], [1, 2, 3, 4]], 0),  # left as they are
        ([[[0.0] * 8] * 2, [[0.0] * 8] * 4], [[[0.0] * 8] * 4] * 2, 0.25),  # the steps of a sequence, not the features of each
        (["a", "bcd"], ["a", "bcd"], 0),
        ([], [], 0),
    ],
)
def test_padding_is_the_share_of_a_batch_beyond_its_sample_lengths(samples, batch, padding):
    assert batches.padding_of(samples, batch) == pytest.approx(padding)
