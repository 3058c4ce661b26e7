"""A training engine with hooks.

It has weight groups with and without decay, a one-cycle schedule, a scaler, clipping, and a log every hundred steps.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sawtooth.sample_traces.sets.second.workloads import Batch, precision_context
from sawtooth.sample_traces.workload import DEVICE, Workload, count_params

Criterion = Callable[..., dict[str, Tensor]]
Hook = Callable[["Engine"], None]
LOG_EVERY = 100  # Steps between two lines of the log.
TOTAL_STEPS = 200_000  # Steps of the schedule.


def weight_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return the optimizer's groups: matrices with weight decay, vectors and biases without."""
    weights = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]


class Engine:
    """Runs training steps of one model.

    `criterion(model, *batch)` returns the losses by name. Their weights in the total loss are `shares`.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        *,
        amp: str = "bf16",
        lr: float = 4e-4,
        shares: dict[str, float] | None = None,
        max_norm: float = 1.0,
        channels_last: bool = False,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.model = model.to(DEVICE)
        self.channels_last = channels_last
        if channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
        self.criterion, self.autocast, self.shares = criterion, precision_context(amp), shares or {}
        self.max_norm, self.hooks = max_norm, hooks
        self.optimizer = torch.optim.AdamW(weight_groups(model, 0.05), lr, betas=(0.9, 0.98), fused=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, lr, TOTAL_STEPS, cycle_momentum=False)
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=amp == "fp16")
        self.sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=DEVICE))
        self.iteration, self.last_log, self.lines = 0, time.perf_counter(), []  # type: int, float, list[str]

    def on_device(self, batch: Batch) -> Batch:
        """Return the batch on the device, in the model's layout."""
        moved = tuple(part.to(DEVICE, non_blocking=True) for part in batch)
        if not self.channels_last:
            return moved
        return tuple(p.contiguous(memory_format=torch.channels_last) if p.ndim == 4 else p for p in moved)

    def iterate(self, batch: Batch) -> None:
        """Run one step of training."""
        self.model.train()
        parts = self.on_device(batch)
        with self.autocast():
            losses = self.criterion(self.model, *parts)
            total = sum(
                (self.shares.get(name, 1.0) * loss.float() for name, loss in losses.items()), torch.zeros((), device=DEVICE)
            )
        self.scaler.scale(total).backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        for hook in self.hooks:
            hook(self)
        for name, value in {"total": total, "norm": norm, **losses}.items():
            self.sums[name] += value.detach()
        self.iteration += 1
        if self.iteration % LOG_EVERY == 0:
            self.write_log()

    def write_log(self) -> None:
        """Add a log line with the means since the last one, the learning rate and the seconds per step."""
        now = time.perf_counter()
        means = ", ".join(f"{name} {float(value) / LOG_EVERY:.4f}" for name, value in self.sums.items())
        rate = self.schedule.get_last_lr()[0]
        self.lines.append(f"[{self.iteration:>7}] {means}, lr {float(rate):.2e}, {(now - self.last_log) / LOG_EVERY:.4f} s")
        self.sums.clear()
        self.last_log = now


def train(model: nn.Module, data: Iterator[Batch], criterion: Criterion, samples: int, **options: Any) -> Workload:
    """Return a workload whose step trains `model` on the next batch of `data`."""
    engine = Engine(model, criterion, **options)
    return Workload(lambda: engine.iterate(next(data)), count_params(model), samples)
