"""Tests that code examples use the run's names from the trace, and say that they do."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.actions import MODEL, OPTIMIZER, function_of, with_optimizer
from sawtooth.analysis.run.model import CodeChange
from sawtooth.app.words import advice

ADAM = CodeChange(
    "PyTorch",
    "torch.optim.$optimizer(model.parameters(), $options)",
    "torch.optim.$optimizer(model.parameters(), $options, $fused)",
    slot_defaults=OPTIMIZER,
)
TRAINER = CodeChange("Transformers", "TrainingArguments(...)", 'TrainingArguments(..., optim="adamw_torch_fused")')


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("SGD", ["torch.optim.SGD(model.parameters(), …, fused=True)"]),
        ("Adagrad", ["torch.optim.Adagrad(model.parameters(), …, foreach=True)"]),  # No fused form for a GPU in every version.
        ("AdamW", ["torch.optim.AdamW(model.parameters(), …, fused=True)", TRAINER.after]),
    ],
)
def test_optimizer_code_uses_the_class_and_the_arguments_it_accepts(name: str, after: list[str]) -> None:
    assert [change.after for change in with_optimizer((ADAM, TRAINER), name)] == after


def test_example_code_uses_the_model_name_of_the_trace() -> None:
    template = CodeChange("PyTorch", "model = $model.cuda()", "model = torch.compile($model.cuda())", slot_defaults=MODEL)
    own, compiled = template.filled(model="LM(…)", optimizer="SGD"), template.filled()
    assert own.after == "model = torch.compile(LM(…).cuda())" and compiled.after == "model = torch.compile(Net().cuda())"
    assert advice.diff(own).splitlines()[0] == advice.WITH_NAMES
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
def test_a_function_is_named_if_its_name_is_descriptive(frame: str, name: str | None) -> None:
    assert function_of(frame) == name
