"""Training loops of the second set: one trainer, and functions for the kinds of data.

The later sets use them too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sawtooth.sample_traces.images import JpegImages
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params, make_adam

Batch = tuple[Tensor, ...]
Loss = Callable[..., Tensor]


def precision_context(precision: str) -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Set the TF32 switches and return a function that makes the autocast context.

    `precision` is fp32, tf32, bf16 or fp16.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return lambda: torch.autocast(DEVICE, kind, enabled=True) if kind else contextlib.nullcontext()


def train(
    model: nn.Module,
    data: Iterator[Batch],
    loss_of: Loss,
    *,
    samples: int,
    precision: str = "bf16",
    optimizer: str = "fused",
    sgd: bool = False,
    clip: str = "",
    accumulate: int = 1,
    read: str = "",
    compiled: bool = False,
    graph: bool = False,
    average: bool = False,
    channels_last: bool = False,
) -> Workload:
    """Return a loop over `data` that minimizes `loss_of(model, *batch)`.

    Batches are on the host or on the GPU. `clip` says how gradients are clipped: "" (not), "foreach" or "by_hand" (each norm
    is read back). `read` says what the host reads back in every step: "" (nothing), "loss", or "metrics" (the loss and five
    figures of it, one by one). `average` updates an exponential moving average of the parameters, one tensor after the other.
    """
    context = precision_context(precision)
    model = model.to(DEVICE)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
    tuned = [p for p in model.parameters() if p.requires_grad]
    flags = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[optimizer]
    chosen: Any = torch.optim.SGD(tuned, 0.01, 0.9, **flags) if sgd else make_adam(model, optimizer, capturable=graph)
    scaler = torch.amp.GradScaler(DEVICE) if precision == "fp16" else None
    forward = torch.compile(model) if compiled else model
    averages = [p.detach().clone() for p in tuned] if average else []
    history: list[float] = []
    place = itertools.repeat(next(data)) if graph else data  # A CUDA graph always reads the same memory.

    def step(run: nn.Module = forward) -> None:  # type: ignore[assignment]  # a compiled module is a module
        for _ in range(accumulate):
            batch = tuple(
                part.to(DEVICE, non_blocking=True).contiguous(memory_format=torch.channels_last)
                if channels_last and part.dim() == 4
                else part.to(DEVICE, non_blocking=True)
                for part in next(place)
            )
            with context():
                loss = loss_of(run, *batch) / accumulate
            (scaler.scale(loss) if scaler else loss).backward()
        if clip == "foreach":
            nn.utils.clip_grad_norm_(tuned, 1.0)
        elif clip == "by_hand":
            for p in tuned:
                norm = p.grad.norm().item() if p.grad is not None else 0.0
                if norm > 1.0 and p.grad is not None:
                    p.grad.mul_(1.0 / norm)
        if scaler:
            scaler.step(chosen)
            scaler.update()
        else:
            chosen.step()
        chosen.zero_grad(set_to_none=True)
        for mean, p in zip(averages, tuned, strict=False):
            mean.mul_(0.999).add_(p.detach(), alpha=0.001)
        if read:
            history.append(loss.item())
        if read == "metrics":
            history.extend(figure.item() for figure in (loss.exp(), loss.sqrt(), loss.log(), loss.square(), loss.isnan()))

    return Workload(as_graph(step) if graph else step, count_params(model), samples * accumulate, lambda: step(model))


def on_gpu(make: Callable[[], Batch], kinds: int = 3) -> Iterator[Batch]:
    """Return an endless cycle of a few batches that stay on the GPU."""
    return itertools.cycle([tuple(part.to(DEVICE) for part in make()) for _ in range(kinds)])


def pinned(make: Callable[[], Batch], kinds: int = 3, pin: bool = True) -> Iterator[Batch]:
    """Return an endless cycle of a few batches in host memory, pinned or not."""
    return itertools.cycle([tuple(part.pin_memory() if pin else part for part in make()) for _ in range(kinds)])


def tokens(vocab: int, batch: int, seq: int) -> Batch:
    """Return random token ids."""
    return (torch.randint(0, vocab, (batch, seq)),)


def images(batch: int, side: int = 224, classes: int = 1000) -> Batch:
    """Return random images and their classes."""
    return torch.randn(batch, 3, side, side), torch.randint(0, classes, (batch,))


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of the classes."""
    return F.cross_entropy(model(x), y)


def lengths(vocab: int, batch: int, sizes: Sequence[int]) -> Iterator[Batch]:
    """Return token batches whose length differs from step to step."""
    return itertools.cycle([tuple(part.to(DEVICE) for part in tokens(vocab, batch, size)) for size in sizes])


def jpegs(batch: int, workers: int, side: int = 256) -> Iterator[Batch]:
    """Yield JPEGs that `workers` loader processes decode, scaled on the GPU."""
    more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 2} if workers else {}
    loader = DataLoader(
        JpegImages(batch * 100_000, side), batch_size=batch, num_workers=workers, pin_memory=True, drop_last=True, **more
    )
    for x, y in loader:
        yield x.to(DEVICE, non_blocking=True).float().div_(127.5).sub_(1.0), y


def records(batch: int, columns: int, workers: int) -> Iterator[Batch]:
    """Yield rows of a table that a loader fetches one by one, as a naive Dataset does."""
    table = torch.utils.data.TensorDataset(torch.randn(200_000, columns), torch.randint(0, 10, (200_000,)))
    while True:
        yield from DataLoader(table, batch_size=batch, num_workers=workers, shuffle=True, pin_memory=True, drop_last=True)
