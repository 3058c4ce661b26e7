"""Tests of the times of samples and collating, and of the padding of a batch."""

from __future__ import annotations

import functools
import time

import msgspec
import pytest

from sawtooth.analysis.findings.loader_limits import cheaper_batch_change, limiting_stage, loader_limit
from sawtooth.ingest.capture import batches
from sawtooth.ingest.loop import batch_files
from sawtooth.ingest.manifest import UserFacts


class Rows:
    """A dataset of rows with lengths 1 to 4 in turn. Each row takes ``sample_s``."""

    def __init__(self, sample_s):
        self.sample_s = sample_s

    def __len__(self):
        return 96

    def __getitem__(self, index):
        if self.sample_s:  # Even a sleep of 0 s would release the core.
            time.sleep(self.sample_s)
        return {"x": [1.0] * (index % 4 + 1), "label": index}


class Stream:
    """The rows of ``Rows`` as an iterable dataset, which the workers share."""

    def __init__(self, sample_s):
        self.rows = Rows(sample_s)

    def __iter__(self):
        info = pytest.importorskip("torch.utils.data").get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return (self.rows[index] for index in range(first, 96, step))


class Padded:
    """A callable that takes ``seconds`` to collate rows, padded to the length of the longest."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, rows):
        time.sleep(self.seconds)
        longest = max(len(row["x"]) for row in rows)
        torch = pytest.importorskip("torch")
        return {"x": torch.tensor([row["x"] + [0.0] * (longest - len(row["x"])) for row in rows])}


def timed_facts(folder, make):
    data = pytest.importorskip("torch.utils.data")
    from torch.utils.data._utils import fetch

    end = batches.watch(fetch, folder)
    try:
        assert len(list(make(data))) == 12
    finally:
        end()
    return msgspec.convert(batch_files.loader_facts(batch_files.read_loading(folder)), UserFacts)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("sample_s", "collate_s", "stage", "words"),
    [(0.0, 0.02, "collate", "collating takes"), (0.004, 0.0, "sample", "a sample waits")],
)
def test_the_slowest_stage_is_the_limit(tmp_path, workers, sample_s, collate_s, stage, words):
    facts = timed_facts(
        tmp_path,
        lambda data: data.DataLoader(
            data.Subset(Rows(sample_s), range(96)), batch_size=8, num_workers=workers, collate_fn=Padded(collate_s)
        ),
    )
    assert limiting_stage(facts) == stage
    title, advice = loader_limit(facts)
    assert words in title and ("Vectorise" in advice.sentence) is (stage == "collate")
    assert ("Padded.__call__" if stage == "collate" else "Rows.__getitem__") in title and "test_batch_stages.py:" in title
    assert facts.loader_padding == pytest.approx(1 - 2.5 / 4)  # Lengths 1 to 4, padded to 4.
    assert ("groups samples of similar length" in advice.sentence) is (stage == "collate")
    assert ("order" in cheaper_batch_change(facts).after) is (stage == "collate")


@pytest.mark.parametrize("workers", [0, 2])
def test_collating_of_an_iterable_dataset_is_separated_from_its_samples(tmp_path, workers):
    facts = timed_facts(
        tmp_path,
        lambda data: data.DataLoader(
            type("Lines", (data.IterableDataset,), {"__iter__": lambda _: iter(Stream(0.0))})(),
            batch_size=8, num_workers=workers, collate_fn=Padded(0.02),
        ),
    )  # fmt: skip
    assert limiting_stage(facts) == "collate" and facts.loader_collate_ms >= 20
    # The code is that of the dataset, and not the __getitem__ of PyTorch's base class.
    assert facts.loader_sample_code is not None and "test_batch_stages.py" in facts.loader_sample_code


def test_a_sampler_that_groups_lengths_gives_no_padding(tmp_path):
    grouped = [[4 * row + length for row in range(first, first + 8)] for length in range(4) for first in (0, 8, 16)]
    facts = timed_facts(
        tmp_path, lambda data: data.DataLoader(Rows(0.0), batch_sampler=grouped, collate_fn=functools.partial(Padded(0.02)))
    )
    _, advice = loader_limit(facts)
    assert facts.loader_padding == 0 and "Vectorise" in advice.sentence and "padding" not in advice.sentence


@pytest.mark.parametrize(
    ("samples", "batch", "padding"),
    [
        ([{"x": [1, 2]}, {"x": [1, 2, 3, 4]}], {"x": [[1, 2, 0, 0], [1, 2, 3, 4]]}, 0.25),
        ([{"x": [1, 2]}, {"x": [1, 2, 3, 4]}], {"x": [1, 2, 1, 2, 3, 4]}, 0),  # Packed without padding.
        ([([1.0], 3), ([2.0], 4)], [[1.0], [2.0]], 0),
        ([1, 2, 3], [1, 2, 3], 0),
        ([[1, 2], [1, 2, 3, 4]], [[1, 2], [1, 2, 3, 4]], 0),  # not padded
        (
            [[[0.0] * 8] * 2, [[0.0] * 8] * 4],
            [[[0.0] * 8] * 4] * 2,
            0.25,
        ),  # The steps of a sequence are padded, and not the features.
        (["a", "bcd"], ["a", "bcd"], 0),
        ([], [], 0),
    ],
)
def test_padding_is_the_share_of_a_batch_beyond_its_sample_lengths(samples, batch, padding):
    assert batches.padding_share(samples, batch) == pytest.approx(padding)
