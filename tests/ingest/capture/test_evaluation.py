"""When a training sets its model to evaluate, and what a compiler sees of the recorder (here, since loading PyTorch's takes seconds)."""

from pathlib import Path

import pytest

from sawtooth.ingest.capture.command.hook import Hook, HookSettings
from sawtooth.ingest.capture.evaluation import Evaluations

torch = pytest.importorskip("torch")


def test_a_module_is_seen_to_evaluate_and_none_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    evaluations = Evaluations()
    evaluations.watch(torch.nn.modules.module)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    assert model.eval() is model and not model[1].training and evaluations.count == 1
    model.train()
    assert model[1].training and evaluations.count == 1


def test_a_compiled_function_is_compiled_once_although_it_evaluates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "eval", torch.nn.Module.eval)
    evaluations, graphs = Evaluations(), []
    evaluations.watch(torch.nn.modules.module)
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


def test_a_step_that_is_compiled_is_marked_and_the_compiler_warns_of_nothing(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Dynamo traced the hook, and warned of the clock that it reads, in the training's own output."""
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
