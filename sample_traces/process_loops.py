"""The small training loops of ``processes.py``, each as it is or with one change.

The function of a loop takes the device and whether the loop is changed. It returns a function that runs one step. Its docstring
names the change.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[], object]


def gpt(
    device: str, *, width: int = 768, heads: int = 12, layers: int = 6, vocabulary: int = 50304, length: int = 512
) -> tuple:
    """Return a small transformer of PyTorch's own layers, its loss as a function of tokens, and tokens."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(vocabulary, width)
            layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.embed(tokens)))

    model = Model().to(device)
    tokens = torch.randint(0, vocabulary, (8, length), device=device)

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())

    return model, loss


def trained(model: Any, loss: Callable, **adam: Any) -> Step:
    """Return a training step with AdamW."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **adam)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def precision(device: str, changed: bool) -> Step:
    """FP32 → bf16 autocast."""
    import torch

    model, loss = gpt(device)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=changed):
            return loss()

    return trained(model, cast, fused=True)


def tf32(device: str, changed: bool) -> Step:
    """FP32 products → TF32."""
    import torch

    torch.set_float32_matmul_precision("high" if changed else "highest")
    return trained(*gpt(device, layers=4), fused=True)


def head(device: str, changed: bool) -> Step:
    """A vocabulary of 50257 → 50304."""
    import torch

    model, loss = gpt(device, vocabulary=50304 if changed else 50257)

    def cast() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return loss()

    return trained(model, cast, fused=True)


def layout(device: str, changed: bool) -> Step:
    """Convolutions in bf16: channels first → channels last."""
    import torch

    layers: list = []
    for before, after in ((3, 128), (128, 256), (256, 256), (256, 256), (256, 512)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]
    model = torch.nn.Sequential(*layers).to(device)
    images = torch.randn(24, 3, 96, 96, device=device)
    if changed:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
        images = images.to(memory_format=torch.channels_last)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            return model(images).float().square().mean()

    return trained(model, loss, fused=True)


def attention(device: str, changed: bool) -> Step:
    """Attention as two products and a softmax → scaled_dot_product_attention."""
    import torch

    project = torch.nn.Linear(1024, 3072, bias=False).to(device)
    words = torch.randn(4, 2048, 1024, device=device)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            x = words
            for _ in range(4):
                q, k, v = (part.view(4, 2048, 16, 64).transpose(1, 2) for part in project(x).chunk(3, dim=-1))
                if changed:
                    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                else:
                    scores = (q @ k.transpose(-1, -2)) * 0.125
                    mask = torch.ones(2048, 2048, dtype=torch.bool, device=device).triu(1)
                    y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
                x = y.transpose(1, 2).flatten(2)
            return x.float().square().mean()

    return trained(project, loss, fused=True)


def recomputation(device: str, changed: bool) -> Step:
    """Activation checkpointing of each block → none."""
    import torch
    from torch.utils.checkpoint import checkpoint

    blocks = torch.nn.ModuleList(
        torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, norm_first=True) for _ in range(6)
    ).to(device)
    words = torch.randn(8, 512, 1024, device=device)

    def loss() -> Any:
        with torch.autocast(device, torch.bfloat16):
            x = words
            for block in blocks:
                x = block(x) if changed else checkpoint(block, x, use_reentrant=False)
            return x.float().square().mean()

    return trained(blocks, loss, fused=True)


def small_layers(device: str, width: int = 128, layers: int = 60) -> tuple:
    """Return a deep model of small layers, whose host is the limit, and its loss."""
    import torch

    model = torch.nn.Sequential(*(part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU()))).to(
        device
    )
    rows = torch.randn(64, width, device=device)
    return model, lambda: model(rows).square().mean()


def optimizer(device: str, changed: bool) -> Step:
    """AdamW tensor by tensor → fused."""
    return trained(*small_layers(device), fused=changed or None, foreach=None if changed else False)


def multi_tensor(device: str, changed: bool) -> Step:
    """AdamW with multi-tensor kernels → fused."""
    return trained(*small_layers(device, layers=150), fused=changed or None, foreach=None if changed else True)


def reads(device: str, changed: bool) -> Step:
    """The loss and the norm of every gradient are read each step → every 50th step."""
    model, loss = small_layers(device, layers=30)
    inner, number = trained(model, loss, fused=True), 0

    def step() -> None:
        nonlocal number
        inner()
        number += 1
        if not changed or number % 50 == 0:
            sum(parameter.grad.norm().item() for parameter in model.parameters())

    return step


def cells(device: str, changed: bool) -> Step:
    """A loop over LSTMCell → nn.LSTM."""
    import torch

    model = (torch.nn.LSTM(256, 256, batch_first=True) if changed else torch.nn.LSTMCell(256, 256)).to(device)
    words = torch.randn(32, 64, 256, device=device)

    def loss() -> Any:
        if changed:
            return model(words)[0].square().mean()
        state, outputs = None, []
        for word in words.unbind(1):
            state = model(word, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1).square().mean()

    return trained(model, loss, fused=True)


def averages(device: str, changed: bool) -> Step:
    """A moving average of the weights, tensor by tensor → one call of torch._foreach_lerp_."""
    import torch

    model, loss = small_layers(device, layers=100)
    inner = trained(model, loss, fused=True)
    parameters = list(model.parameters())
    means = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def step() -> None:
        with torch.enable_grad():
            inner()
        if changed:
            torch._foreach_lerp_(means, parameters, 0.01)
        else:
            for mean, parameter in zip(means, parameters, strict=True):
                mean.mul_(0.99).add_(parameter, alpha=0.01)

    return step


def small_batches(device: str, changed: bool) -> Step:
    """Eight micro-batches of 16 rows → one of 128."""
    import torch

    model, _ = small_layers(device, width=512, layers=20)
    rows = torch.randn(128, 512, device=device)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    parts = 1 if changed else 8

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        for part in rows.chunk(parts):
            (model(part).square().mean() / parts).backward()
        adam.step()

    return step


def collections(device: str, changed: bool) -> Step:
    """gc.collect() in every step, over 200,000 objects → none."""
    inner = trained(*small_layers(device), fused=True)
    objects = [[number] for number in range(200_000)]

    def step() -> None:
        inner()
        if not changed:
            gc.collect()
        len(objects)

    return step


def copies(device: str, changed: bool) -> Step:
    """A pageable batch → pinned memory and non_blocking copies."""
    import torch

    model = torch.nn.Conv2d(3, 128, 7, stride=2).to(device)
    images = torch.randn(96, 3, 224, 224)
    images = images.pin_memory() if changed and device != "cpu" else images

    def loss() -> Any:
        return model(images.to(device, non_blocking=changed)).square().mean()

    return trained(model, loss, fused=True)


class Samples:
    """A dataset whose samples take a few milliseconds of a core."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> object:
        import torch

        end = time.perf_counter() + 0.003
        value = 0
        while time.perf_counter() < end:
            value += 1
        return torch.full((256,), float(index % 7))


def loader(device: str, changed: bool) -> Step:
    """A loader with one worker → six."""
    import torch

    model, _ = small_layers(device, width=256, layers=10)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=6 if changed else 1))  # type: ignore[arg-type]

    def step() -> None:
        rows = next(batches).to(device)
        adam.zero_grad(set_to_none=True)
        model(rows).square().mean().backward()
        adam.step()

    return step


def python(device: str, changed: bool) -> Step:
    """Python computes a metric of 4,096 numbers in each step → every 20th step."""
    inner, number = trained(*small_layers(device), fused=True), 0
    values = [float(value) for value in range(40_960)]

    def step() -> None:
        nonlocal number
        inner()
        number += 1
        if not changed or number % 20 == 0:
            sorted(sum(value * value for value in values[start : start + 10]) for start in range(0, len(values), 10))

    return step


LOOPS = {
    each.__name__: each
    for each in (
        precision, tf32, head, layout, attention, recomputation, optimizer, multi_tensor,
        reads, cells, averages, small_batches, collections, copies, loader, python,
    )
}  # fmt: skip
