"""Tests that all of PyTorch's anti-patterns (``torch.profiler._pattern_matcher``) are covered."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from sawtooth.analysis.findings.checking import all_rules

COVERED = {
    "ExtraCUDACopyPattern": "tensors-made-on-cpu",
    "ForLoopIndexingPattern": "loop-indexing",
    "FP32MatMulPattern": "tf32-off",
    "OptimizerSingleTensorPattern": "optimizer-not-fused",
    "SynchronizedDataLoaderPattern": "data-loader-starves-gpu",
    "GradNotSetToNonePattern": "zeroed-gradients",
    "Conv2dBiasFollowedByBatchNorm2dPattern": "bias-before-norm",
    "MatMulDimInFP16Pattern": "misaligned-dimensions",
}
NO_PATTERNS = {"Pattern", "NamePattern"}  # Base classes of the other patterns.


def test_each_pattern_has_a_rule() -> None:
    assert set(COVERED.values()) <= {rule.slug for rule in all_rules()}


def test_the_list_is_the_installed_one() -> None:
    found = find_spec("torch")
    if found is None or found.origin is None:
        pytest.skip("torch is not installed")
    source = Path(found.origin).parent / "profiler" / "_pattern_matcher.py"
    classes = {node.name for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}
    assert classes - NO_PATTERNS == set(COVERED)
