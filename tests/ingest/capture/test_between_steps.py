"""Tests of evaluations and checkpoints between steps, and of torch.compile with the recorder."""

import inspect
import threading
from pathlib import Path

import pytest

from sawtooth.ingest.capture.between_steps import BetweenSteps
from sawtooth.ingest.capture.command.hook import Hook
from sawtooth.ingest.capture.command.settings import HookSettings
from sawtooth.ingest.capture.in_process.compiler import leave_out_recorder
from sawtooth.ingest.capture.in_process.loader_waits import LoaderWaits

torch = pytest.importorskip("torch")


def test_evaluation_is_counted_once_per_outermost_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    between = BetweenSteps()
    between.watch_evaluation(torch.nn.modules.module)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    assert model.eval() is model and not model[1].training and between.evaluations == 1
    model.train()
    assert model[1].training and between.evaluations == 1


def test_checkpoints_of_the_training_are_counted_and_unchanged(tmp_path: Path) -> None:
    """A save in a background thread is not counted, because it does not delay a step."""
    between, plain = BetweenSteps(), torch.save
    leave = between.watch_saving(torch)
    try:
        torch.save({"weight": torch.ones(2)}, tmp_path / "state.pt")
        thread = threading.Thread(target=torch.save, args=({"weight": torch.ones(2)}, tmp_path / "background.pt"))
        thread.start()
        thread.join()
        with pytest.raises(TypeError):
            torch.save()
        assert between.checkpoints == 2
        assert inspect.signature(torch.save) == inspect.signature(plain)
    finally:
        leave()
    assert torch.save is plain
    for name in ("state.pt", "background.pt"):
        assert torch.load(tmp_path / name)["weight"].tolist() == [1.0, 1.0]


def test_a_compiled_function_is_compiled_once_although_it_evaluates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    between, graphs = BetweenSteps(), []
    between.watch_evaluation(torch.nn.modules.module)
    model = torch.nn.Linear(2, 2)

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def step(x):
        return model.eval()(x)

    for _ in range(4):
        step(torch.ones(2, 2))
    assert len(graphs) == 1


def test_a_compiled_step_is_marked_without_compiler_warnings(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """If Dynamo traced the hook, the training's output would have a warning about the hook's clock."""
    from torch.optim import optimizer as optimizers

    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    hook = Hook(HookSettings(tmp_path, 0, 1.0, None, 1, 1))
    handle = optimizers.register_optimizer_step_post_hook(hook.on_step)
    try:
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(3):
            weight.sum().backward()
            step()
    finally:
        handle.remove()
        hook.finish()
    (marks,) = tmp_path.glob("marks-*.jsonl")
    assert len(marks.read_text().splitlines()) == 1 + 3
    assert not [warning for warning in recwarn if "monotonic_ns" in str(warning.message)]


def test_the_compiler_skips_the_recorder_outside_graphs(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """If Dynamo compiled the recorder's functions, the output would have warnings about their clocks."""
    from torch._dynamo import trace_rules
    from torch.optim import optimizer as optimizers
    from torch.utils.data import DataLoader, dataloader

    waits, rules = LoaderWaits(), list(trace_rules.SKIP_DIRS)
    leave_waits, leave_out = waits.watch(dataloader), leave_out_recorder(trace_rules)
    hook = Hook(HookSettings(tmp_path, 0, 1.0, None, 1, 1), loader_waits=waits)
    handle = optimizers.register_optimizer_step_post_hook(hook.on_step)
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer, loader = torch.optim.SGD([weight], lr=0.1), DataLoader([1.0] * 8)

    @torch.compile(backend="eager")
    def epoch() -> None:
        for batch in loader:
            (weight.sum() * batch).sum().backward()
            optimizer.step()

    try:
        for _ in range(3):
            epoch()
    finally:
        handle.remove()
        leave_waits()
        leave_out()
        hook.finish()
    (marks,) = tmp_path.glob("marks-*.jsonl")
    assert len(marks.read_text().splitlines()) == 1 + 3 * 8
    assert not [warning for warning in recwarn if "Dynamo does not know how to trace" in str(warning.message)]
    assert rules == trace_rules.SKIP_DIRS
