"""Tests of choosing the calls that are the steps of a loop without an optimizer."""

import contextlib
import copy
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad
from torch.utils.data import DataLoader, TensorDataset

from sawtooth.ingest.capture.command.hook import Hook
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.settings import HookSettings
from sawtooth.ingest.capture.command.without_optimizer.boundaries import MIN_BOUNDARY_STEPS, MIN_EVENTS, BoundaryDetector
from sawtooth.ingest.capture.command.without_optimizer.outermost_module import CALL_ATTRIBUTE, OutermostModule
from sawtooth.ingest.loop.step_boundary import step_in_words

STEPS = 30


class Model(torch.nn.Module):
    """A model whose call takes long enough to be measured."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.layer, self.seconds = torch.nn.Linear(4, 4), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.layer(x)


@contextlib.contextmanager
def detector_in(folder: Path) -> Iterator[BoundaryDetector]:
    settings = HookSettings(folder, 0, 0.01, None, 1, 1)
    detector = BoundaryDetector(settings, lambda *kind: Hook(settings, boundary=kind, wait_factor=detector.wait_factor))
    optimizers: Any = sys.modules["torch.optim.optimizer"]
    hook = Hook(settings, on_loop=detector.give_up)
    handle = optimizers.register_optimizer_step_post_hook(hook.on_step)
    try:
        detector.watch(optimizers)
        detector.watch_batches(torch.utils.data.dataloader)
        yield detector
    finally:
        handle.remove()
        hook.finish()
        detector.finish()
        if detector._thread is not None:
            detector._thread.join(10)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("marks-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def update_by_hand(model: Model) -> None:
    for _ in range(STEPS):
        model(torch.ones(2, 4)).sum().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)


def use_gradients(model: Model) -> None:
    parameters = dict(model.named_parameters())
    gradient_of_loss = grad(lambda p: functional_call(model, p, (torch.ones(2, 4),)).sum())
    for _ in range(STEPS):
        gradient_of_loss(parameters)


def call_model(model: Model) -> None:
    for _ in range(STEPS):
        model(torch.ones(2, 4))


def load_batches(_: Model) -> None:
    for (batch,) in DataLoader(TensorDataset(torch.ones(STEPS, 4))):
        batch.sum()


def run_closures(model: Model) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-4, max_iter=STEPS, tolerance_grad=0, tolerance_change=0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


@pytest.mark.parametrize(
    ("loop", "boundary", "expected_marks"),
    [
        (update_by_hand, "backward", STEPS - MIN_EVENTS + 1),
        (use_gradients, "gradient", STEPS - MIN_EVENTS + 1),
        (load_batches, "batch", STEPS - MIN_EVENTS + 1),
        (run_closures, "backward", STEPS - MIN_EVENTS + 1),
    ],
)
def test_a_loop_without_steps_of_an_optimizer_is_marked_by_the_best_boundary(
    tmp_path: Path, loop: Callable[[Model], None], boundary: str, expected_marks: int
) -> None:
    with detector_in(tmp_path):
        loop(Model())
    (run,) = runs_to_pack(tmp_path)
    head, *marks = [json.loads(line) for line in run.sources[0][0].read_text().splitlines()]
    assert head["sign"] == boundary
    assert len(marks) == expected_marks
    assert [mark["i"] for mark in marks] == list(range(expected_marks))
    assert marks[0]["at"][0].startswith("test_boundaries.py:")


def test_calls_of_the_outermost_module_are_steps_and_the_module_is_unchanged(tmp_path: Path) -> None:
    model = Model(0.02)
    with detector_in(tmp_path) as detector:
        while detector.boundary is None:
            call_model(model)
        call_model(model)
        assert CALL_ATTRIBUTE in model.__dict__
        copied_model = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
    head, *marks = lines_of(tmp_path)
    assert (head["sign"], head["of"]) == ("call", "Model")
    assert len(marks) >= STEPS
    assert CALL_ATTRIBUTE not in model.__dict__
    assert CALL_ATTRIBUTE not in copied_model.__dict__


def test_two_calls_per_step_are_one_step(tmp_path: Path) -> None:
    def guided(model: Model) -> None:
        for _ in range(STEPS):
            model(torch.ones(2, 4)), model(torch.zeros(2, 4))

    with detector_in(tmp_path) as detector:
        model = Model()
        assert detector._module is not None
        detector._module._patch_calls(model)
        guided(model)
    marks = lines_of(tmp_path)[1:]
    assert {mark["o"] for mark in marks} == {0, 1}
    assert max(mark["i"] for mark in marks) < STEPS


def test_an_optimizer_that_steps_twice_defines_the_loop(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = torch.autograd._engine_run_backward
    with detector_in(tmp_path):
        update_by_hand(model)  # Such as a search for a learning rate.
        assert [path.name for path in tmp_path.glob("marks-*.sign.jsonl")]
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert torch.autograd._engine_run_backward is run  # No patch remains.
        call_model(model)  # an evaluation
    head, *marks = lines_of(tmp_path)
    assert "sign" not in head
    assert len(marks) == STEPS


def test_an_optimizer_that_exists_delays_the_profile_of_another_boundary(tmp_path: Path) -> None:
    class UnusedOptimizer(torch.optim.SGD):
        """A class of optimizers that no other test uses."""

    with detector_in(tmp_path) as detector:
        detector._optimizers = type("Optimizers", (), {"Optimizer": UnusedOptimizer})
        detector._optimizer_exists = False
        UnusedOptimizer.step = lambda *_: None
        assert detector.wait_factor() == 1.0
        del UnusedOptimizer.step
        UnusedOptimizer(Model().parameters(), lr=0.1)
        assert detector.wait_factor() > 1.0


def test_a_few_backward_passes_before_a_long_generation_are_not_a_loop(tmp_path: Path) -> None:
    model = Model()
    with detector_in(tmp_path) as detector:
        for _ in range(MIN_EVENTS + 1):
            model(torch.ones(2, 4)).sum().backward()
        assert detector.boundary == "backward"
        assert detector._module is not None
        detector._module._patch_calls(model)
        for _ in range(2 * MIN_BOUNDARY_STEPS):
            model(torch.ones(2, 4))
            time.sleep(0.001)
    assert lines_of(tmp_path)[0]["sign"] == "call"


def test_compiled_code_is_neither_compiled_again_nor_broken() -> None:
    compiled: list[object] = []

    def backend(graph: Any, _: object) -> Any:
        compiled.append(graph)
        return graph.forward

    model, noticed = Model(), []
    x = torch.ones(2, 4)
    model.seconds = 0.0
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4))
    function = torch.compile(lambda x: plain(x) + 1, backend=backend, fullgraph=True)
    function(x)
    finder = OutermostModule(torch.nn.Module, lambda: noticed.append(1))
    finder._patch_calls(plain)
    plain(x)
    function(x)
    assert len(compiled) == 1
    later = torch.compile(lambda x: plain(x) + 2, backend=backend, fullgraph=True)
    later(x)
    finder.release()
    later(x)
    assert len(compiled) == 2
    assert noticed == [1]
    wrapped = torch.compile(plain, backend=backend)
    wrapped(x)
    before = len(compiled)
    finder._patch_calls(wrapped)
    wrapped(x)
    finder.release()
    assert (len(compiled), len(noticed), finder.name) == (before, 2, "Sequential")


def test_a_module_that_transforms_data_is_not_the_outermost() -> None:
    finder, outermost = OutermostModule(torch.nn.Module, lambda: None), []

    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frame = finder._outermost(sys._getframe())
            outermost.append(frame and type(frame.f_locals["self"]).__name__)
            return x

    class Embedded(torch.nn.Sequential):
        """A module with parameters that contains a ``Scale``."""

    scale, embedded, x = Scale(), Embedded(Scale(), torch.nn.Linear(4, 4)), torch.ones(1, 4)
    scale(x), embedded(x)
    next(iter(DataLoader([x], collate_fn=lambda batch: embedded(batch[0]))))
    assert outermost == [None, "Embedded", None]


def test_a_long_call_is_counted_once(tmp_path: Path) -> None:
    finder = OutermostModule(torch.nn.Module, lambda: None)
    model, call_ended = Model(0.2), threading.Event()

    def search() -> None:
        while not call_ended.is_set():
            finder.search()
            time.sleep(0.005)

    thread = threading.Thread(target=search)
    thread.start()
    model(torch.ones(2, 4))
    call_ended.set()
    thread.join()
    assert [times for _, times in finder._calls.values()] == [1]


def test_a_step_boundary_is_described_in_words() -> None:
    assert step_in_words("call", "GPT", "generate.py:42") == (
        "No optimizer stepped, so a step is one call of GPT.forward (generate.py:42)."
    )
    assert step_in_words(None) == ""
