"""Tests of FLOPs per step of real recordings against the FLOP counter of the same run.

The project's own samples are always used, and more recordings if SAWTOOTH_SHARED or ``../shared`` has them.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawtooth.analysis.knowledge.flops import is_flop_operator, operator_flops, outermost
from tests.support.paths import ROOT

SHARED = Path(os.environ.get("SAWTOOTH_SHARED", ROOT.parent / "shared"))
RECORDINGS = sorted(
    truth.parent
    for truth in [*ROOT.glob("sample_traces/*/truth.json"), *SHARED.glob("recordings/*/truth.json")]
    if json.loads(truth.read_text()).get("flops_per_step") and (truth.parent / "trace.json.gz").exists()
)


def steps_and_operators(path: Path) -> tuple[list[tuple[float, float]], list[dict[str, Any]]]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = sorted(
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
    )
    operators = [e for e in events if e.get("cat") == "cpu_op"]
    operators.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    open_ops: dict[Any, list[int]] = defaultdict(list)
    for index, event in enumerate(operators):
        stack = open_ops[event["tid"]]
        while stack and operators[stack[-1]]["ts"] + operators[stack[-1]]["dur"] <= event["ts"]:
            stack.pop()
        event["parent"] = stack[-1] if stack else -1
        stack.append(index)
    return steps, operators


@pytest.mark.sweep(4)
@pytest.mark.parametrize("folder", RECORDINGS, ids=[folder.name for folder in RECORDINGS])
def test_flops_per_step_equal_the_flop_counter(folder):
    truth = json.loads((folder / "truth.json").read_text())["flops_per_step"]
    steps, operators = steps_and_operators(folder / "trace.json.gz")
    parent = np.array([e["parent"] for e in operators], dtype=np.int64)
    counted = np.array([is_flop_operator(e["name"]) for e in operators])
    total = 0.0
    for index in np.flatnonzero(outermost(parent, counted)):
        event = operators[index]
        if any(start <= event["ts"] < end for start, end in steps):
            args = event["args"]
            flops = operator_flops(event["name"], args["Input Dims"], args["Concrete Inputs"])
            assert flops is not None, event
            total += flops
    assert total / len(steps) == pytest.approx(truth, rel=1e-6)


def test_the_samples_are_among_the_recordings():
    assert len(RECORDINGS) >= 3
