"""Training loops of the first set; each function returns one step to repeat."""

from __future__ import annotations

import contextlib
import gc
import itertools
import tempfile
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.data import DataLoader

from sawtooth.sample_traces.images import JpegImages
from sawtooth.sample_traces.sets.first.models import Gpt, GptShape, ResNet, mlp, python_work
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params, make_adam

Batches = Generator[tuple[Tensor, Tensor], None, None]


def set_precision(precision: str) -> contextlib.AbstractContextManager[object]:
    """Set the TF32 switches for `precision` (fp32, tf32, bf16) and return the autocast context."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16")


def gpt(
    shape: GptShape,
    batch: int,
    *,
    precision: str = "bf16",
    optimizer: str = "fused",
    grad_norms: bool = False,
    host_reads: bool = False,
    recompute: bool = False,
    compiled: bool = False,
    empty_cache: bool = False,
    set_to_none: bool = True,
    keep_logits: bool = False,
    collect_garbage: bool = False,
    late_s: float = 0.0,
    late_every: int = 1,
    reduce_after: bool = False,
    fill_memory: float = 0.0,
    wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
    save_every: int = 0,
    marks: bool = False,
) -> Workload:
    """Return next-token training of a GPT on random tokens.

    `late_s` is Python work before the batch of every `late_every`-th step is ready. `grad_norms` computes the norm of every
    gradient, and `host_reads` reads the norms, and the loss twice, back to the host. `wrap` may make the model a distributed
    one. `reduce_after` averages the gradients over the ranks one by one after the backward pass. `fill_memory` is the share of
    the GPU's memory that other data occupy.
    """
    autocast = set_precision(precision)
    model = Gpt(shape).to(DEVICE)
    model.recompute, model.stored_logits = recompute, [] if keep_logits else None
    adam = make_adam(model, optimizer)
    if shape.mask_on == "cpu":
        torch.set_num_threads(1)  # One thread builds the masks, because this is steadier than sixteen threads.
    pool = [torch.randint(0, shape.vocab, (batch, shape.seq + 1)).pin_memory() for _ in range(4)]
    forward = torch.compile(model) if compiled else wrap(model)
    heap = [[i] for i in range(400_000)] if collect_garbage else []  # Objects that the garbage collector has to visit.
    mark = record_function if marks else contextlib.nullcontext
    history: list[Any] = []
    if fill_memory:
        history.append(
            torch.empty(
                int(fill_memory * torch.cuda.get_device_properties(DEVICE).total_memory), dtype=torch.int8, device=DEVICE
            )
        )
    folder = tempfile.TemporaryDirectory()
    counter = itertools.count()

    def step(run: Callable[[Tensor, Tensor], Tensor] = forward) -> None:
        index = next(counter)
        with mark("data"):
            if late_s and index % late_every == 0:
                python_work(late_s)
            tokens = pool[index % 4].to(DEVICE, non_blocking=True)
        adam.zero_grad(set_to_none=set_to_none)
        with mark("forward"), autocast:
            loss = run(tokens[:, :-1], tokens[:, 1:])
        if host_reads and torch.isnan(loss).item():
            raise FloatingPointError("loss is not a number")
        with mark("backward"):
            loss.backward()
        for gradient in (p.grad for p in model.parameters() if reduce_after and p.grad is not None):
            torch.distributed.all_reduce(gradient, op=torch.distributed.ReduceOp.AVG)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norms = [torch.linalg.vector_norm(p.grad) for p in model.parameters() if p.grad is not None] if grad_norms else []
        if host_reads:
            history.append([norm.item() for norm in norms])
        with mark("optimizer"):
            adam.step()
        if host_reads:
            history.append(loss.item())
        if heap:
            gc.collect()
        if empty_cache:
            torch.cuda.empty_cache()
        if save_every and index % save_every == 0:
            state = {"model": model.state_dict(), "optimizer": adam.state_dict()}
            torch.save(state, Path(folder.name) / "checkpoint.pt")

    def without_recompute() -> None:
        model.recompute = False
        step(model)
        model.recompute = recompute

    eager = without_recompute if recompute else (lambda: step(model))
    return Workload(step, count_params(model), batch, eager, step if recompute else None, folder.cleanup)


def batches(source: str, batch: int, loader: dict[str, Any] | None) -> Batches:
    """Yield image batches without end.

    The `source` is `jpeg` (a DataLoader), `gpu` (memory of the GPU), `pageable` or `pinned` (host memory). `loader` contains
    the DataLoader's options and two more: `side` of the JPEGs, and `epoch`, the batches until the loader starts again.
    """
    if source == "jpeg":
        options = {"batch_size": batch, "drop_last": True, **(loader or {})}
        side, epoch = options.pop("side", 512), options.pop("epoch", 100_000)
        jpegs = DataLoader(JpegImages(batch * epoch, side), **options)
        while True:
            yield from jpegs
    pool = []
    for _ in range(3):
        images, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
        if source == "gpu":
            images, labels = images.to(DEVICE), labels.to(DEVICE)
        elif source == "pinned":
            images, labels = images.pin_memory(), labels.pin_memory()
        pool.append((images, labels))
    yield from itertools.cycle(pool)


def copied(data: Batches, non_blocking: bool) -> Batches:
    """Yield batches on the GPU, copied on the stream that computes."""
    for images, labels in data:
        yield images.to(DEVICE, non_blocking=non_blocking), labels.to(DEVICE, non_blocking=non_blocking)


def prefetched(data: Batches) -> Batches:
    """Yield batches on the GPU, each copied on a side stream while the previous step computes."""
    side = torch.cuda.Stream()

    def fetch() -> tuple[Tensor, Tensor]:
        images, labels = next(data)
        with torch.cuda.stream(side):
            return images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)

    ahead = fetch()
    while True:
        torch.cuda.current_stream().wait_stream(side)
        ready, ahead = ahead, fetch()
        for tensor in ready:
            tensor.record_stream(torch.cuda.current_stream())
        yield ready


def resnet(
    batch: int,
    *,
    depths: tuple[int, ...] = (3, 4, 6, 3),
    source: str = "gpu",
    loader: dict[str, Any] | None = None,
    channels_last: bool = True,
    non_blocking: bool = True,
    benchmark: bool = True,
    precision: str = "bf16",
    marks: bool = False,
    train: bool = True,
    grad: bool = True,
    prefetch: bool = False,
    sides: tuple[int, ...] = (),
) -> Workload:
    """Return image classification with a bottleneck ResNet.

    `train=False` evaluates, with or without `grad`. `prefetch` copies the next batch on a separate stream while the GPU
    computes. With `sides`, the images of each step are cropped to another of these sizes.
    """
    torch.backends.cudnn.benchmark = benchmark
    autocast = set_precision(precision)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = ResNet(depths).to(DEVICE).train(train)
    model.to(memory_format=layout)  # type: ignore[call-overload]  # missing in the stubs
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    data = batches(source, batch, loader)
    to_gpu = prefetched(data) if prefetch else copied(data, non_blocking)
    mark = record_function if marks else contextlib.nullcontext
    mean = torch.tensor([124.0, 116.0, 104.0], device=DEVICE).view(1, 3, 1, 1)
    crops = itertools.cycle(sides)

    def step() -> Tensor:
        with mark("data"):
            images, labels = next(to_gpu)
        if sides:
            side = next(crops)
            images = images[..., :side, :side]
        if images.dtype == torch.uint8:
            images = ((images - mean) / 58.0).contiguous(memory_format=layout)
        else:
            images = images.contiguous(memory_format=layout)
        with torch.set_grad_enabled(grad), mark("forward"), autocast:
            loss = F.cross_entropy(model(images), labels)
        if train:
            with mark("backward"):
                loss.backward()
            with mark("optimizer"):
                sgd.step()
                sgd.zero_grad(set_to_none=True)
        return loss

    return Workload(step, count_params(model), batch, close=data.close)


def perceptron(
    batch: int,
    *,
    layers: int = 24,
    inputs: int = 256,
    hidden: int = 256,
    norm: bool = True,
    optimizer: str = "fused",
    graph: bool = False,
    precision: str = "bf16",
    compiled: bool = False,
    rows: tuple[int, ...] = (),
) -> Workload:
    """Return regression of an MLP on data that is already on the GPU.

    `graph` replays the step as one CUDA graph. `compiled` steps take two batches of each size in `rows`, one after the other.
    """
    autocast = set_precision(precision)
    model = mlp(layers, inputs, hidden, norm=norm).to(DEVICE)
    adam = make_adam(model, optimizer, capturable=True)
    x, y = torch.randn(batch, inputs, device=DEVICE), torch.randn(batch, 16, device=DEVICE)

    forward = torch.compile(model, dynamic=False) if compiled else model
    if compiled:
        torch._dynamo.config.recompile_limit = 64  # Beyond this limit, PyTorch stops compiling and runs eagerly.
    counter = itertools.count()

    def step(run: Callable[[Tensor], Tensor] = forward) -> None:
        size = rows[next(counter) // 2 % len(rows)] if rows else batch
        adam.zero_grad(set_to_none=True)
        with autocast:
            loss = F.mse_loss(run(x[:size]), y[:size])
        loss.backward()
        adam.step()

    return Workload(as_graph(step) if graph else step, count_params(model), batch, lambda: step(model))


def fp8_products(size: int, count: int) -> Workload:
    """Return `count` FP8 matrix products of `size` cubed per step, accumulated in bf16."""
    a = torch.randn(size, size, device=DEVICE).to(torch.float8_e4m3fn)
    b = torch.randn(size, size, device=DEVICE).to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device=DEVICE)

    def step() -> None:
        for _ in range(count):
            torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)

    return Workload(step, 0, 1)


def boolean_masks(batch: int, width: int) -> Workload:
    """Return a loop with boolean masks for hard examples; the host waits for each mask's length."""
    set_precision("bf16")
    model = mlp(6, width, width).to(DEVICE)
    adam = make_adam(model, "fused")
    x, y = torch.randn(batch, width, device=DEVICE), torch.randint(0, 16, (batch,), device=DEVICE)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            losses = F.cross_entropy(model(x), y, reduction="none")
        hard = losses[losses > losses.mean()]
        hard.mean().backward()
        adam.step()

    return Workload(step, count_params(model), batch)


def small(**changes: Any) -> GptShape:
    """Return the GPT of most recordings, four layers of width 512, with `changes`."""
    return replace(GptShape(), **changes)
