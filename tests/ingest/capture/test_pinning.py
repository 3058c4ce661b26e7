"""Tests of the times of pinning batches."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from sawtooth.ingest.capture import batches
from sawtooth.ingest.loop import batch_files
from tests.support.batch_files import FIRST, write_batches


def test_fetchers_are_unchanged_if_pinning_cannot_be_timed(tmp_path, monkeypatch):
    utils = pytest.importorskip("torch.utils.data._utils")
    before = [getattr(utils.fetch, name).fetch for name in batches.FETCHERS]
    monkeypatch.delattr(utils.pin_memory, "pin_memory")
    with pytest.raises(AttributeError):
        batches.watch_loaders(tmp_path)
    assert [getattr(utils.fetch, name).fetch for name in batches.FETCHERS] == before


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
    write_batches(tmp_path, 1, 1, [FIRST, *[(4, 48_000_000, 22_000_000, 8_000_000, 6_000_000)] * 5])
    loading = batch_files.read_loading(tmp_path)
    cost = loading.cost
    assert 0.010 <= cost.pin_s < 0.1  # Two lists and three numbers take 2 ms each.
    assert len((next(tmp_path.glob("pins-*.txt"))).read_text().splitlines()) == 5
    assert batch_files.loader_facts(loading)["loader_pin_ms"] == pytest.approx(1e3 * cost.pin_s)


@pytest.mark.parametrize(("since_ms", "pin_ms"), [(6, 16), (40, 20)])
def test_time_of_the_pinning_thread_between_batches_counts(tmp_path, since_ms, pin_ms):
    # Pinning takes 10 ms. In a longer time between two batches, the thread may have waited for a batch.
    lines = [f"10000000 {since_ms * 1_000_000 + wait * 1_000_000}" for wait in range(20)]
    (tmp_path / "pins-1.txt").write_text("\n".join(["90000000 0", *lines, ""]))
    assert 1e3 * batch_files._pin_s(tmp_path) == pytest.approx(pin_ms, abs=2.1)


def test_the_first_batch_of_a_pinning_thread_has_no_predecessor(tmp_path):
    """Each epoch has its own thread.

    With a time of 0 ns, the first batch would have the shortest wait of pinning.
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
