"""Common parts of the ninth set's scripts.

Each script is a generator that trains from top to bottom and yields once per step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from sawtooth.sample_traces.workload import DEVICE, Workload, count_params

Script = Iterator[Tensor]  # The loss of each step, on the GPU.
Autocast = Callable[[], contextlib.AbstractContextManager[object]]


def workload(script: Script, samples: int, *models: nn.Module) -> Workload:
    """Return a script as a loop, whose step runs the script up to its next loss."""
    return Workload(lambda: next(script), sum(count_params(model) for model in models), samples)


def autocast(precision: str) -> Autocast:
    """Return the autocast context of `precision`: fp32, tf32 or bf16."""
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    return lambda: torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16")


class Progress:
    """The text of a progress bar: the loss, smoothed on the GPU and read every fiftieth step."""

    def __init__(self, every: int = 50) -> None:
        self.every, self.steps, self.smooth, self.text = every, 0, torch.zeros((), device=DEVICE), ""

    def update(self, loss: Tensor) -> None:
        """Count a step."""
        self.smooth.lerp_(loss.detach().float(), 0.05)
        self.steps += 1
        if self.steps % self.every == 0:
            self.text = f"step {self.steps}: loss {self.smooth.item():.4f}"
