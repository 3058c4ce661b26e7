"""Scenarios of the third set, recorded on an H100 after the analysis was written.

The two earlier sets do not contain these models. Each pair differs in one change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.third import models as m
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params

TIMING: dict[str, Any] = {"active": 3, "timed_s": 6.0, "after_s": 1.5, "synced_steps": 10, "min_steps": 10, "marks": True}
END = 1  # The token that ends a text.


def state_space(batch: int, time: int, graph: bool) -> Workload:
    """Return the training of a Mamba layer with a scan over time in Python."""
    model = nn.Sequential(nn.Linear(64, 256), m.SelectiveScan(256), nn.Linear(256, 64))
    data = w.on_gpu(lambda: (torch.randn(batch, time, 64), torch.randn(batch, time, 64)))
    return w.train(model, data, lambda f, x, y: F.mse_loss(f(x).float(), y), samples=batch, graph=graph)


def pictures(make: Callable[[], nn.Module], batch: int, **options: Any) -> Workload:
    """Return the classification of random images in the GPU's memory."""
    return w.train(make(), w.on_gpu(lambda: w.images(batch)), w.classify, samples=batch, **options)


def sampled_graph(nodes: int, edges: int, precision: str) -> Workload:
    """Return the training of GraphSAGE on a random graph."""
    data = w.on_gpu(lambda: (torch.randn(nodes, 512), torch.randint(0, nodes, (2, edges)), torch.randint(0, 40, (nodes,))))
    loss: w.Loss = lambda f, x, e, y: F.cross_entropy(f(x, e), y)  # noqa: E731 - passed on
    return w.train(m.Sage(), data, loss, samples=nodes, precision=precision)


def detection(batch: int, on_host: bool) -> Workload:
    """Return the training of a DETR whose targets are matched on the host or on the GPU.

    On the host, they are matched image by image.
    """
    data = w.on_gpu(lambda: (w.images(batch)[0], torch.randint(0, 20, (batch, 8)), torch.rand(batch, 8, 4)))

    def loss(model: nn.Module, x: Tensor, kinds: Tensor, places: Tensor) -> Tensor:
        classes, boxes = model(x)
        return m.matched(classes, boxes, kinds, places, on_host)

    return w.train(m.Detr(), data, loss, samples=batch)


class Sounds(Dataset[tuple[Tensor, int]]):
    """One second of sound per sample, whose spectrogram is computed on each access."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the spectrogram (1, 257, 126) and its class."""
        wave = torch.sin(torch.arange(16_000) * (0.01 + index % 35 / 100)) + 0.1 * torch.randn(16_000)
        return torch.stft(wave, 512, 127, window=torch.hann_window(512), return_complex=True).abs().log1p()[None], index % 35


def keywords(batch: int, workers: int) -> Workload:
    """Return the classification of spoken words, whose spectrograms loader workers compute."""
    loader = iter(DataLoader(Sounds(), batch, num_workers=workers, pin_memory=True, persistent_workers=True))
    convs = ((1, 64), (64, 128), (128, 256))
    body = (part for a, b in convs for part in (nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()))
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 35))
    return w.train(model, loader, w.classify, samples=batch)


def series(batch: int, evaluate_every: int) -> Workload:
    """Return a temporal convolution network that is evaluated regularly.

    It is evaluated on four batches after every `evaluate_every` steps.
    """
    layers = (part for i in range(4) for part in (nn.Conv1d(64, 64, 3, padding=2**i, dilation=2**i), nn.ReLU()))
    model, steps = nn.Sequential(nn.Conv1d(8, 64, 1), *layers, nn.Conv1d(64, 8, 1)), 0
    data = w.on_gpu(lambda: (torch.randn(batch, 8, 512), torch.randn(batch, 8, 512)))
    work = w.train(model, data, lambda f, x, y: F.mse_loss(f(x).float(), y), samples=batch, optimizer="foreach")

    def step() -> None:
        nonlocal steps
        work.step()
        steps += 1
        if steps % evaluate_every == 0:
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                _ = torch.stack([F.mse_loss(model(x).float(), y) for x, y in (next(data) for _ in range(4))]).sum().item()

    return Workload(step, work.params, batch)


def generation(batch: int, prompt: int, new: int, fixed: bool) -> Workload:
    """Return greedy generation: a prompt, then one token after the other.

    `fixed` uses a cache of constant size and decodes with a CUDA graph.
    """
    model = m.Decoder().to(DEVICE, torch.bfloat16).eval()
    prompts = torch.randint(2, 8192, (batch, prompt), device=DEVICE)
    places = torch.arange(prompt + new, device=DEVICE)

    @torch.no_grad()
    def grow() -> None:
        cache: list[tuple[Tensor, Tensor]] = []
        token = model(prompts, places[:prompt], cache, False)
        for i in range(prompt, prompt + new):
            token = model(token, places[i : i + 1], cache, False)
            if bool((token == END).all()):
                break

    fixed_cache = [
        (torch.zeros(2, batch, 8, prompt + new, 64, device=DEVICE, dtype=torch.bfloat16)).unbind() for _ in model.qkv
    ]
    token, place = torch.zeros(batch, 1, device=DEVICE, dtype=torch.int64), torch.zeros(1, device=DEVICE, dtype=torch.int64)

    def one() -> None:
        token.copy_(model(token, place, fixed_cache, True))
        place.add_(1)

    def replayed(decode: Callable[[], object]) -> None:
        with torch.no_grad():
            token.copy_(model(prompts, places[:prompt], fixed_cache, True))
            place.fill_(prompt)
            for _ in range(new):
                decode()
                if bool((token == END).all()):
                    break

    if not fixed:
        return Workload(grow, count_params(model), batch * new)
    with torch.no_grad():
        decode = as_graph(one, warm_ups=1)
    return Workload(lambda: replayed(decode), count_params(model), batch * new, lambda: replayed(one))


def scenario(
    planted: str,
    make: Callable[..., Workload],
    *sizes: Any,
    fix: str = "",
    change: str = "",
    rules: tuple[str, ...] = (),
    plan: dict[str, Any] | None = None,
    **options: Any,
) -> Scenario:
    """Return a scenario of this set.

    It records three profiled steps and step marks. Telemetry also covers 6 s of training before these steps and 1.5 s after
    them.
    """
    cfg = {"workload": make.__name__, "sizes": [getattr(s, "__name__", str(s)) for s in sizes]}
    cfg |= {key: str(value) for key, value in options.items()}
    return Scenario(
        planted, lambda **more: make(*sizes, **options, **more), fix, change, rules=rules, cfg=cfg, **TIMING | (plan or {})
    )


UNMARKED = {"mark_steps": False}


def swin(fused: bool) -> Callable[[], nn.Module]:
    """Return a constructor of a Swin, with unfused or fused attention."""
    return lambda: m.Swin(fused)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "scan_loop": scenario("launch-bound: a recurrence in Python", state_space, 16, 20, False, fix="scan_graph", change="one CUDA graph per step"),
    "scan_graph": scenario(NONE, state_space, 16, 20, True),
    "detr_on_host": scenario("16 matches read back, image by image", detection, 16, True, fix="detr_on_gpu", change="matched on the GPU"),
    "detr_on_gpu": scenario(NONE, detection, 16, False),
    "resnext_first": scenario("bf16 convolutions in channels-first layout", pictures, m.resnext, 64, fix="resnext_last", change="channels_last"),
    "resnext_last": scenario(NONE, pictures, m.resnext, 64, channels_last=True),
    "swin_math": scenario("attention as products and a softmax", pictures, swin(False), 32, fix="swin_sdpa", change="F.scaled_dot_product_attention"),
    "swin_sdpa": scenario(NONE, pictures, swin(True), 32),
    "sage_fp32": scenario("fp32 products, TF32 off", sampled_graph, 60_000, 300_000, "fp32", fix="sage_tf32", change="allow_tf32 = True"),
    "sage_tf32": scenario(NONE, sampled_graph, 60_000, 300_000, "tf32"),
    "keywords_one": scenario("num_workers=1", keywords, 128, 1, fix="keywords_twelve", change="num_workers 1 -> 12"),
    "keywords_twelve": scenario(NONE, keywords, 128, 12),
    "generate_growing": scenario("a cache that grows token by token", generation, 8, 256, 16, False, plan=UNMARKED, fix="generate_fixed", change="a cache of one size and a CUDA graph"),
    "generate_fixed": scenario(NONE, generation, 8, 256, 16, True, plan=UNMARKED),
    "series_evaluated": scenario("evaluation after every third step", series, 64, 3, plan=UNMARKED | {"active": 8}),
}
# fmt: on
