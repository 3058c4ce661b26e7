"""A training loop with common extras: schedule, clipping, scaler, averages, several losses, meters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sawtooth.sample_traces.sets.second.workloads import Batch, precision_context
from sawtooth.sample_traces.workload import DEVICE, Workload, count_params

Losses = Callable[..., Mapping[str, Tensor]]
LOG_EVERY = 50  # Steps between two lines of the log.


class Meter:
    """A mean since the last line of the log, stored on the GPU until it is read."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = 0

    def update(self, value: Tensor, count: int) -> None:
        """Add `count` samples whose mean is `value`."""
        part = value.detach() * count
        self.total = part if self.total is None else self.total + part
        self.count += count

    def flush(self) -> float:
        """Read the mean and start again."""
        mean = float(self.total) / self.count if self.total is not None else math.nan
        self.total, self.count = None, 0
        return mean


class Average:
    """An exponential moving average of a model's weights, updated for all weights at once."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.live: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.mean, self.decay = [p.detach().clone() for p in self.live], decay

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights."""
        torch._foreach_lerp_(self.mean, self.live, 1 - self.decay)


class Trainer:
    """Trains a model on batches; `losses(model, *batch)` returns the named parts of the loss to add."""

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        *,
        lr: float = 3e-4,
        precision: str = "bf16",
        clip: float = 1.0,
        average: bool = False,
        channels_last: bool = False,
        sgd: bool = False,
    ) -> None:
        self.model = model.to(DEVICE)
        if channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
        self.losses, self.context, self.clip, self.channels_last = losses, precision_context(precision), clip, channels_last
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(self.weights, lr, 0.9, weight_decay=1e-4, fused=True)
            if sgd
            else torch.optim.AdamW(self.weights, lr, fused=True)
        )
        warm = 100
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(step, 20_000) / 20_000)),
        )
        self.average = Average(self.model) if average else None
        self.meters: dict[str, Meter] = {}
        self.log: list[dict[str, float]] = []
        self.steps = 0

    def placed(self, part: Tensor) -> Tensor:
        """Return a part of a batch on the device, in the model's layout."""
        part = part.to(DEVICE, non_blocking=True)
        return part.contiguous(memory_format=torch.channels_last) if self.channels_last and part.dim() == 4 else part

    def step(self, batch: Batch) -> None:
        """Run one step of training."""
        parts = [self.placed(part) for part in batch]
        self.optimizer.zero_grad(set_to_none=True)
        with self.context():
            named = self.losses(self.model, *parts)
            loss = torch.stack([value.float() for value in named.values()]).sum()
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.weights, self.clip)
        self.optimizer.step()
        self.schedule.step()
        if self.average is not None:
            self.average.update()
        for name, value in {"loss": loss, **named}.items():
            self.meters.setdefault(name, Meter()).update(value, len(parts[0]))
        self.steps += 1
        if self.steps % LOG_EVERY == 0:
            self.log.append(
                {"lr": float(self.schedule.get_last_lr()[0])} | {name: meter.flush() for name, meter in self.meters.items()}
            )


def fit(model: nn.Module, data: Iterator[Batch], losses: Losses, samples: int, **options: Any) -> Workload:
    """Return a training loop over `data`."""
    trainer = Trainer(model, losses, **options)
    return Workload(lambda: trainer.step(next(data)), count_params(model), samples)
