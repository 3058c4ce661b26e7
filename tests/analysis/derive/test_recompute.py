"""Tests of recomputation found in operators, for both kinds of activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from sawtooth.analysis.derive.events import Calls, CpuOps, GpuOps, TraceEvents
from sawtooth.analysis.derive.recompute import is_recomputed_work
from sawtooth.analysis.knowledge.flops import is_flop_operator, operator_flops, outermost
from tests.support.cpu_profile import operators_of

BATCH, WIDTH, HIDDEN = 8, 16, 32


def events_of(step: Callable[[], Any], folder: Path, *, sequences: bool = True) -> tuple[TraceEvents, np.ndarray]:
    """Profile ``step`` on the CPU; return its operators as analysis sees them, and their FLOPs."""
    ops = operators_of(step, folder)
    names: dict[str, int] = {}
    signatures: dict[str, int] = {}
    flops = [operator_flops(op["name"], op["args"].get("Input Dims"), op["args"].get("Concrete Inputs")) for op in ops]
    n = len(ops)

    def column(values):
        return np.array(values, dtype=np.int64)

    cpu = CpuOps(
        np.zeros(n, bool),
        np.array([names.setdefault(op["name"], len(names)) for op in ops], np.int32),
        np.zeros(n, np.int32),
        column([op["ts"] * 1000 for op in ops]),
        column([(op["ts"] + op["dur"]) * 1000 for op in ops]),
        column([op["parent"] for op in ops]),
        column([op["args"].get("Sequence number", -1) if sequences else -1 for op in ops]),
        column([op["args"].get("Fwd thread id", -1) for op in ops]),
        np.array([signatures.setdefault(str(op["args"].get("Input Dims")), len(signatures)) for op in ops], np.int32),
    )
    none, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    gpu = GpuOps(np.zeros(0, np.int8), none32, none32, none, none, none, none, none, none, none)
    calls = Calls(none32, none32, none, none, none, none, none32)
    return TraceEvents(0, list(names), gpu, calls, cpu), np.array([f or 0.0 for f in flops])


def again_flops(step: Callable[[], Any], folder: Path, **kwargs: bool) -> tuple[float, float]:
    events, flops = events_of(step, folder, **kwargs)
    counted = np.array([is_flop_operator(events.names[n]) for n in events.ops.name])
    counted = outermost(events.ops.parent, counted)
    return float(flops[is_recomputed_work(events, counted)].sum()), float(flops[counted].sum())


def block() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.GELU(), torch.nn.Linear(HIDDEN, WIDTH))


BLOCK_FLOPS = 2 * (2 * BATCH * WIDTH * HIDDEN)  # two products of 8×16×32 forward


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpointed_block_is_recomputed_once(use_reentrant, tmp_path):
    layers, head = block(), torch.nn.Linear(WIDTH, 4)
    x = torch.randn(BATCH, WIDTH, requires_grad=True)

    def step() -> None:
        head(checkpoint(layers, x, use_reentrant=use_reentrant)).sum().backward()

    again, everything = again_flops(step, tmp_path)
    head_flops = 2 * BATCH * WIDTH * 4
    assert again == BLOCK_FLOPS
    assert everything == 3 * (BLOCK_FLOPS + head_flops) + BLOCK_FLOPS  # Forward, backward twice that, and once again.


def test_plain_training_has_no_recomputation(tmp_path):
    layers = block()
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    again, everything = again_flops(lambda: layers(x).sum().backward(), tmp_path)
    assert again == 0
    assert everything == 3 * BLOCK_FLOPS


def test_double_backward_is_not_recomputation(tmp_path):
    layer = torch.nn.Linear(WIDTH, HIDDEN)
    x = torch.randn(BATCH, WIDTH, requires_grad=True)

    def step() -> None:
        (grad,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
        grad.pow(2).sum().backward()

    assert again_flops(step, tmp_path)[0] == 0


def test_checkpoint_node_shows_recomputation_without_sequence_numbers(tmp_path):
    layers = block()
    x = torch.randn(BATCH, WIDTH, requires_grad=True)

    def step() -> None:
        checkpoint(layers, x, use_reentrant=True).sum().backward()

    assert again_flops(step, tmp_path, sequences=False)[0] == BLOCK_FLOPS


def test_no_operators(tmp_path):
    events, _ = events_of(lambda: None, tmp_path)
    assert is_recomputed_work(events, np.zeros(len(events.ops), bool)).sum() == 0
