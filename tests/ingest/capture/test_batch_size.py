"""Tests of the search for the largest batch, with a step on the CPU that raises out-of-memory errors."""

from __future__ import annotations

import random
import weakref
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from sawtooth.ingest.capture.batch_size.examples import resized
from sawtooth.ingest.capture.batch_size.finder import find_batch_size, report_lines
from sawtooth.ingest.capture.batch_size.search import BatchSizes, BatchSizeTrial, search
from sawtooth.ingest.capture.batch_size.state import TrainingState
from sawtooth.ingest.loop.batch_rule import advised_below
from sawtooth.ingest.runs.bundle_file import open_bundle


def searched(
    fitting: int, start: int, min_size: int = 1, max_size: int = 1 << 20, **limits: Any
) -> tuple[BatchSizes, list[int]]:
    """Return the result of a search in which ``fitting`` samples fit, and the tried sizes."""
    sizes: list[int] = []

    def fits(size: int) -> bool:
        sizes.append(size)
        return size <= fitting

    def try_size(size: int) -> BatchSizeTrial:
        return BatchSizeTrial(size, 1.0 * size if fits(size) else None)

    return search(start, min_size, max_size, try_size, fits, **limits), sizes


@pytest.mark.parametrize("fitting", [1, 2, 3, 7, 8, 9, 100, 127, 128, 129, 1000, 4097])
@pytest.mark.parametrize("start", [1, 4, 64])
def test_the_largest_batch_is_known_to_a_sixteenth(fitting: int, start: int) -> None:
    sizes, tried = searched(fitting, start)
    assert sizes.largest is not None and sizes.too_large is not None
    assert sizes.largest <= fitting < sizes.too_large
    assert sizes.too_large - sizes.largest <= max(sizes.largest // 16, 1)
    assert len(tried) < 32, "the search does not bisect"
    assert {t.batch for t in sizes.trials if t.step_ms} >= {sizes.largest, sizes.advised}, "the recommended size was timed"


def test_sizes_are_powers_of_two_times_the_start() -> None:
    sizes, _ = searched(100, 16, min_size=4)
    # 16, 32 and 64 fit and 128 does not; 8 and 4 fit. Then 96 fits, 112 and 104 do not, and 100 does. The rest is less than 100 // 16 = 6.
    assert (sizes.largest, sizes.too_large, sizes.advised) == (100, 104, 80)
    assert [(t.batch, t.step_ms is not None) for t in sizes.trials] == [
        (4, True), (8, True), (16, True), (32, True), (64, True), (80, True), (100, True), (128, False)
    ]  # fmt: skip


def test_largest_size_is_recommended_if_max_size_ended_the_search() -> None:
    sizes, _ = searched(1 << 30, 16, max_size=100)
    assert (sizes.largest, sizes.too_large, sizes.advised) == (100, None, 100)
    assert "No larger batch was tried" in report_lines(sizes)[-1]


def test_no_size_begins_after_the_time_limit() -> None:
    sizes, tried = searched(1 << 30, 16, has_time=lambda: False)
    assert tried == [16] and sizes.largest == 16


def test_a_search_in_which_no_batch_fits() -> None:
    sizes, _ = searched(0, 8)
    assert (sizes.largest, sizes.advised) == (None, None) and report_lines(sizes) == ["sawtooth: no batch fits into memory."]


def test_size_that_fits_only_once_is_not_the_largest() -> None:
    """A batch of 100 runs once and then runs out of memory.

    The largest batch is the largest that was timed.
    """
    seen: list[int] = []

    def fits(size: int) -> bool:
        seen.append(size)
        return size <= 100 and not (size > 96 and seen.count(size) > 1)

    sizes = search(16, 16, 1000, lambda n: BatchSizeTrial(n, 1.0 if fits(n) else None), fits)
    assert (sizes.largest, sizes.too_large) == (80, 100)


def test_recommended_size_is_a_multiple_of_eight() -> None:
    assert [advised_below(n) for n in (1, 5, 9, 10, 100, 1000)] == [1, 4, 7, 8, 80, 800]


def test_accumulating_steps_the_optimizer_once() -> None:
    # four passes of 16 in 10 ms each, of which the optimizer takes 2: 4 × 10 − 3 × 2 = 34 ms for 64 samples
    assert BatchSizeTrial(16, 10.0, optimizer_ms=2.0).accumulated_per_s(64) == pytest.approx(64 / 0.034)
    assert (
        BatchSizeTrial(16, 10.0).accumulated_per_s(16) == pytest.approx(1600)
        and BatchSizeTrial(16, 10.0).accumulated_per_s(8) is None
    )


class Loop:
    """A model with batch norm, dropout and an optimizer.

    A step with more than ``fitting`` samples runs out of memory.
    """

    def __init__(self, fitting: int = 1 << 20, optimizer: Any = torch.optim.AdamW) -> None:
        torch.manual_seed(5)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )
        self.optimizer = optimizer(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.fitting, self.sizes = fitting, list[int]()

    def step(self, batch: dict[str, torch.Tensor]) -> float:
        self.sizes.append(len(batch["x"]))
        loss = (self.model(batch["x"]) - batch["y"]).square().mean() + random.random() * 0 + np.random.rand() * 0
        self.optimizer.zero_grad()
        loss.backward()
        if len(batch["x"]) > self.fitting:  # Gradients exist already, and the optimizer has changed part of its state.
            self.optimizer.state[next(self.model.parameters())]["step"] = torch.tensor(77.0)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())

    @property
    def changes(self) -> list[Any]:
        return [self.model, self.optimizer, self.schedule]

    def trains(self, steps: int = 4) -> list[float]:
        """Return the losses of the next steps, with new random samples."""
        return [self.step({"x": torch.randn(4, 8), "y": torch.randn(4, 1)}) for _ in range(steps)]


BATCH = {"x": torch.ones(4, 8), "y": torch.ones(4, 1), "name": "of four"}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_training_state_is_restored(before: int, optimizer: Any, capsys: Any) -> None:
    reference, disturbed = Loop(optimizer=optimizer), Loop(fitting=20, optimizer=optimizer)
    torch.manual_seed(7)
    reference.trains(before)
    expected = reference.trains()
    torch.manual_seed(7)
    disturbed.trains(before)
    grads = [p.grad for p in disturbed.model.parameters()]
    sizes = find_batch_size(disturbed.step, BATCH, changes=disturbed.changes, seconds=0.001)
    assert (sizes.largest, sizes.too_large, sizes.advised) == (20, 21, 16)
    assert max(disturbed.sizes) == 32, "it did run out of memory"
    assert all(a is b for a, b in zip(grads, (p.grad for p in disturbed.model.parameters()), strict=True))
    assert disturbed.trains() == expected, "bit for bit"
    assert "Use 16 " in capsys.readouterr().err


def test_random_numbers_of_all_libraries_are_restored() -> None:
    loop = Loop(fitting=9)

    def draw_numbers() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(1))]

    own = torch.Generator().manual_seed(3)
    state = TrainingState(torch, [own])
    expected = [*draw_numbers(), float(torch.rand(1, generator=own))]
    state.restore()
    state.restore_random()
    again = TrainingState(torch, [own])
    find_batch_size(loop.step, BATCH, changes=loop.changes, seconds=0.001)
    assert draw_numbers() == expected[:3]
    again.restore()
    assert float(torch.rand(1, generator=own)) == expected[3]


def test_other_errors_are_raised_and_the_state_is_restored() -> None:
    loop = Loop()
    parameters = [p.detach().clone() for p in loop.model.parameters()]

    def broken(batch: Any) -> None:
        loop.step(batch)
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        find_batch_size(broken, BATCH, changes=loop.changes, seconds=0.001)
    assert all(torch.equal(a, b) for a, b in zip(parameters, loop.model.parameters(), strict=True))


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Expected canUse32BitIndexMath(input) to be true"),
    ],
)
def test_errors_that_count_as_out_of_memory(error: Exception) -> None:
    def step(batch: torch.Tensor) -> None:
        if len(batch) > 4:
            raise error

    sizes = find_batch_size(step, torch.ones(2, 1), changes=[], seconds=0.001)
    assert (sizes.largest, sizes.too_large) == (4, 5)


@pytest.mark.parametrize("example", [torch.zeros(32, 4), {"x": [torch.zeros(32), torch.tensor(1.0)]}, ["no tensor"]])
def test_example_without_start_samples_raises(example: Any) -> None:
    sizes: list[int] = []
    with pytest.raises(ValueError, match="No tensor of the example has 64 samples"):
        find_batch_size(lambda batch: sizes.append(len(batch)), example, changes=[], start=64, seconds=0.001)
    assert sizes == []


def test_resized_repeats_and_cuts_the_example() -> None:
    example = {"x": torch.arange(3), "mask": [torch.eye(3), torch.tensor(1.0)], "weight": torch.ones(5)}
    larger = resized(torch, example, 3, 7)
    assert larger["x"].tolist() == [0, 1, 2, 0, 1, 2, 0] and larger["mask"][0].shape == (7, 3)
    assert larger["mask"][1] is example["mask"][1] and larger["weight"] is example["weight"]
    assert resized(torch, example, 3, 2)["x"].tolist() == [0, 1]


@pytest.mark.slow
def test_batches_come_from_a_function() -> None:
    sizes: list[int] = []
    with pytest.raises(ValueError, match="start"):
        find_batch_size(lambda batch: None, lambda size: [0] * size, changes=[])
    find_batch_size(lambda batch: sizes.append(len(batch)), lambda size: [0] * size, changes=[], start=8, most=16, seconds=1e-6)
    assert set(sizes) == {2, 4, 8, 16}


def test_a_change_without_state_raises_before_the_first_step() -> None:
    with pytest.raises(TypeError, match="int has no state"):
        find_batch_size(lambda batch: pytest.fail("ran"), torch.ones(2, 1), changes=[3])


def test_bundle_has_sizes_and_a_trace(tmp_path: Any) -> None:
    loop = Loop(fitting=9)
    find_batch_size(
        loop.step, BATCH, changes=loop.changes, path=tmp_path / "sizes", seconds=0.001, settings={"precision": "fp32"}
    )
    with open_bundle(tmp_path / "sizes.sawtooth") as bundle:
        (run,) = bundle.manifest.runs
    assert run.settings == {"precision": "fp32", "batch_size": "4"} and run.facts.samples_per_step == 4
    assert [r.kind for r in run.recordings] == ["trace"]
    assert [(row.batch, row.step_ms is not None) for row in run.batches] == [
        (2, True), (4, True), (7, True), (8, True), (9, True), (16, False)
    ]  # fmt: skip
    assert all((row.optimizer_ms or 0) >= 0 and row.low_ms <= row.step_ms <= row.high_ms for row in run.batches if row.step_ms)


def test_tensors_of_a_failed_size_are_freed() -> None:
    activation_refs: list[Any] = []

    def step(batch: torch.Tensor) -> None:
        assert [ref() for ref in activation_refs] == [None] * len(activation_refs), (
            "a step before this one still holds its tensors"
        )
        activations = batch * 2
        if len(batch) > 4:
            activation_refs.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory.")

    sizes = find_batch_size(step, torch.ones(4, 1), changes=[], seconds=1e-6)
    assert len(activation_refs) >= 3 and sizes.largest == 4


def test_several_ranks_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="on one GPU"):
        find_batch_size(lambda batch: pytest.fail("ran"), torch.ones(2, 1), changes=[])


def test_defaultdict_is_resized() -> None:
    batch = defaultdict(list, {"x": torch.ones(4, 2)})
    assert resized(torch, batch, 4, 6)["x"].shape == (6, 2)
