"""A training loop that is ready to run, and common parts of such loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

DEVICE = "cuda"


@dataclass
class Workload:
    """A training loop that is ready to run.

    `step` is one training step, `flop_step` the same step in a form that FlopCounterMode can count.
    """

    step: Callable[[], object]
    params: int
    samples_per_step: int
    flop_step: Callable[[], object] | None = None  # None: `step` itself.
    executed_flop_step: Callable[[], object] | None = None  # Set if the loop computes more than the model requires.
    close: Callable[[], None] = field(default=lambda: None)


def count_params(model: nn.Module) -> int:
    """Return the number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def make_adam(model: nn.Module, kind: str, capturable: bool = False) -> torch.optim.AdamW:
    """Return AdamW as `fused`, `foreach` or `single` tensor."""
    flags: dict[str, Any] = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}[kind]
    return torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=capturable, **flags)


def as_graph(step: Callable[[], object], warm_ups: int = 3) -> Callable[[], None]:
    """Capture one step in a CUDA graph and return its replay.

    Before that, warm up on a side stream, as PyTorch requires.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_ups):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
