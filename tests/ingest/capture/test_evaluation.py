"""When a training sets its model to evaluate."""

import pytest

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
