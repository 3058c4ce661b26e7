"""Examples of code carry the names that a trace knows of the run, and say so."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.own_code import function_of, with_model, with_optimizer
from sawtooth.analysis.run.model import CodeChange
from sawtooth.app.words import advice

ADAM = CodeChange(
    "PyTorch", "torch.optim.AdamW(model.parameters(), lr=3e-4)", "torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)"
)
TRAINER = CodeChange("Transformers", "TrainingArguments(...)", 'TrainingArguments(..., optim="adamw_torch_fused")')


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("SGD", ["torch.optim.SGD(model.parameters(), …, fused=True)"]),
        ("Adagrad", ["torch.optim.Adagrad(model.parameters(), …, foreach=True)"]),  # no fused form for a GPU in every version
        ("AdamW", ["torch.optim.AdamW(model.parameters(), …, fused=True)", TRAINER.after]),
    ],
)
def test_a_change_of_the_optimizer_names_the_runs_own_and_what_that_has(name: str, after: list[str]) -> None:
    assert [change.after for change in with_optimizer((ADAM, TRAINER), name)] == after


def test_the_model_of_an_example_is_the_runs_own_where_the_trace_names_it() -> None:
    compiled = CodeChange("PyTorch", "model = Net().cuda()", "model = torch.compile(Net().cuda())")
    (own,) = with_model((compiled,), "LM")
    assert own.after == "model = torch.compile(LM(…).cuda())"
    assert advice.diff(own).splitlines()[0] == advice.OF_RUN
    assert advice.diff(compiled).splitlines()[0] == advice.FOR_EXAMPLE


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("speech.py(11): features", "features"),
        ("speech.py: main", None),
        ("speech.py(3): <module>", None),
        ("aten::stft", None),
    ],
)
def test_a_function_is_named_where_its_name_says_what_it_does(frame: str, name: str | None) -> None:
    assert function_of(frame) == name
