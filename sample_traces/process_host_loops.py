"""Small training loops that the host limits, each as it is or with one change.

`processes.py` records them. The function of a loop takes the device and whether the loop is changed. It returns a function that runs one step. Its docstring
names the change.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from sawtooth.sample_traces.process_models import Step, small_layers, trained


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


HOST_LOOPS = {
    loop.__name__: loop
    for loop in (optimizer, multi_tensor, reads, cells, averages, small_batches, collections, copies, loader, python)
}
