"""Tests of sequence lengths: sizes that are in no layer's weights, and padding."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pandas as pd
import pytest

from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.rules import shapes_vary
from sawtooth.analysis.findings.rules.misaligned_dimensions import _action, _changes, _feature_sizes
from sawtooth.analysis.run.model import Finding
from tests.support.findings_of import context_of, finding


def test_a_column_of_a_single_matrix_is_a_feature() -> None:
    rows = pd.DataFrame(
        {
            "flop_operator": ["aten::addmm", "aten::bmm", "aten::mm"],
            "flop_dims": [[[768], [25096, 768], [768, 3072]], [[96, 3137, 64], [96, 64, 3137]], [[25096, 768], [768, 774]]],
        }
    )
    assert _feature_sizes(rows) == {3072, 774}


@pytest.mark.parametrize(
    ("lengths", "what", "named"), [({3137}, "sequences of 3137", "length = 3137"), (set(), "3137", "features = 3137")]
)
def test_a_padded_length_is_masked(lengths: set[int], what: str, named: str) -> None:
    assert _action([3137], None, lengths).object == f"{what} to a multiple of 64"
    (change,) = _changes([3137], None, lengths)
    assert change.before == named


def found_with(**facts: float) -> list[Finding]:
    """Return the rule's findings on the padded loop, with other facts about its loader."""
    with context_of("padded_batches") as context:
        manifest = context.run.manifest
        changed = msgspec.structs.replace(manifest, facts=msgspec.structs.replace(manifest.facts, **facts))
        return found_by(shapes_vary.RULE, replace(context, run=replace(context.run, manifest=changed)))


def test_cost_of_padding_is_its_share_of_length_dependent_kernels() -> None:
    """Three products of 400 µs grow. The batch's copy, a gradient's sum and the optimizer do not."""
    found = finding("padded_batches", "shapes-vary")
    assert found is not None
    assert found.title == "40 % of each batch is padding, and the model's kernels compute on the padding"
    assert found.ceiling_ms_per_step == pytest.approx(0.4 * 1.2, rel=0.01) and found.predicted_step_ms is None
    assert "grow with length (1.2 ms of each step)" in found.prediction_note and found.severity == "warning"
    assert [row["operator"] for row in found.evidence] == ["aten::mm"]


def test_little_padding_is_not_reported() -> None:
    assert found_with(loader_padding=0.19) == [] and len(found_with(loader_padding=0.21)) == 1


def test_padding_is_not_reported_if_the_host_limits_the_step() -> None:
    assert finding("padded_on_a_slow_host", "shapes-vary") is None


@pytest.mark.parametrize("operator", ["flash_attn::_flash_attn_varlen_forward", "aten::_nested_view_from_buffer"])
def test_padding_is_not_reported_for_a_model_that_skips_it(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(shapes_vary.PADDING_FREE_OPERATORS, operator) and not re.search(
        shapes_vary.PADDING_FREE_OPERATORS, "aten::mm"
    )
    monkeypatch.setattr(shapes_vary, "PADDING_FREE_OPERATORS", "^aten::mm$")
    assert found_with() == []


def test_padding_is_reported_once_with_a_slow_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    collates = {
        "loader_batch": 32,
        "loader_sample_ms": 0.001,
        "loader_sample_cpu_ms": 0.001,
        "loader_collate_ms": 9,
        "loader_cores": 8,
    }
    assert len(found_with(**collates)) == 1
    monkeypatch.setattr(RuleContext, "lost_ms", lambda _context, *_causes: 0.1)
    assert found_with(**collates) == []
