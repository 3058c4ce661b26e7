"""Scenarios of the sixth set: loops of new models with common slow habits; pairs differ in one change.

They were recorded on an H200 after the analysis was settled (`record.py --set sixth`). `docs/evidence/accuracy.md` says what
was inspected first.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.sixth import models as m
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third
from sawtooth.sample_traces.workload import DEVICE, Workload, as_graph, count_params

TIMING: dict[str, Any] = {"timed_s": 4.2, "after_s": 0.8, "synced_steps": 6}
ITEMS = 200_000  # Number of items in a shop.


def denoised(batch: int, noise_on: str = DEVICE, habit: str = "") -> Workload:
    """Return a diffusion transformer's training; `habit`: "log" reads figures back, "empty" frees memory."""
    context = w.precision_context("bf16")
    model = m.DiffusionTransformer(64, 4, 512, 10, 8).to(DEVICE)
    adam = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    data = w.on_gpu(lambda: (torch.randn(batch, 4, 64, 64), torch.randint(0, 1000, (batch,))))
    log: list[dict[str, float]] = []

    def step() -> None:
        x, kinds = next(data)
        noise = torch.randn(x.shape, device=noise_on).to(DEVICE)
        time = torch.rand(batch, device=noise_on).to(DEVICE)
        level = torch.cos(time * math.pi / 2)[:, None, None, None]
        adam.zero_grad()
        with context():
            error = (
                (model(level * x + (1 - level**2).sqrt() * noise, time * 1000, kinds).float() - noise).square().mean((1, 2, 3))
            )
            loss = error.mean()
        if habit == "log" and not math.isfinite(loss.item()):
            raise FloatingPointError("loss is not a number")
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        if habit == "log":
            early, late = error[time < 0.5].mean(), error[time >= 0.5].mean()
            log.append({"loss": loss.item(), "norm": norm.item(), "early": early.item(), "late": late.item()})
        if habit == "empty":
            torch.cuda.empty_cache()

    return Workload(step, count_params(model), batch)


def dense(batch: int, last: bool) -> Workload:
    """Return classification with a DenseNet."""
    data = w.on_gpu(lambda: w.images(batch, 128))
    return w.train(m.dense_net(), data, w.classify, samples=batch, channels_last=last)


def tuned(batch: int, recompute: bool) -> Workload:
    """Return the training of a decoder with low-rank layers."""
    data = w.on_gpu(lambda: w.tokens(16_000, batch, 513))
    return w.train(m.Tuned(16_000, 1024, 12, recompute), data, lambda f, words: f(words), samples=batch)


def physics(batch: int, graph: bool) -> Workload:
    """Return a network that fits Burgers' equation; its loss contains second derivatives of the output."""
    w.precision_context("fp32")
    sizes = [2, *(128,) * 7, 1]
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    model = nn.Sequential(*layers).to(DEVICE)
    adam = torch.optim.Adam(model.parameters(), 1e-3, capturable=graph)
    inside = torch.rand(batch, 2, device=DEVICE).requires_grad_(True)
    edge, there = torch.rand(batch // 8, 2, device=DEVICE), torch.zeros(batch // 8, 1, device=DEVICE)

    def field(x: Tensor) -> Tensor:
        # Modules are not called, because PyTorch's FLOP counter cannot follow second derivatives through them.
        for layer in layers[:-1]:
            x = torch.tanh(F.linear(x, layer.weight, layer.bias))
        return F.linear(x, layers[-1].weight, layers[-1].bias)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        u = field(inside)
        first = torch.autograd.grad(u, inside, torch.ones_like(u), create_graph=True)[0]
        second = torch.autograd.grad(first[:, :1], inside, torch.ones_like(u), create_graph=True)[0][:, :1]
        rest = first[:, 1:] + u * first[:, :1] - 0.01 / math.pi * second
        (rest.square().mean() + F.mse_loss(field(edge), there)).backward()
        adam.step()

    return Workload(as_graph(step) if graph else step, count_params(model), batch, step)


class Visits(Dataset[tuple[Tensor, int]]):
    """Purchases of customers as lines of JSON, which are parsed one by one."""

    def __init__(self, lines: int = 2_000, seen: int = 60) -> None:
        kinds = random.Random(0)
        self.lines = [
            json.dumps({"seen": [{"item": kinds.randrange(ITEMS), "price": kinds.random()} for _ in range(seen)]})
            for _ in range(lines)
        ]

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return 60 items and the next bought item."""
        seen = json.loads(self.lines[index % len(self.lines)])["seen"]
        dear = sorted(seen, key=lambda one: -float(one["price"]))
        kept = [one["item"] if random.random() > 0.1 else 0 for one in dear]
        return torch.from_numpy(np.array(kept)), dear[0]["item"]


def shop(batch: int, workers: int) -> Workload:
    """Return the training of two towers that map seen items and the bought item close to each other."""
    more: dict[str, Any] = {"persistent_workers": True} if workers else {}
    loader = iter(DataLoader(Visits(), batch, num_workers=workers, pin_memory=True, **more))
    sizes = ((128, 512), (512, 128))
    model = nn.ModuleList(
        [nn.Embedding(ITEMS, 128), *(nn.Sequential(*(p for a, b in sizes for p in (nn.Linear(a, b), nn.ReLU()))) for _ in "ab")]
    )

    def loss(parts: Any, seen: Tensor, bought: Tensor) -> Tensor:
        a = F.normalize(parts[1](parts[0](seen).mean(1)), dim=-1)
        b = F.normalize(parts[2](parts[0](bought)), dim=-1)
        return F.cross_entropy(a @ b.t() * 20.0, torch.arange(len(a), device=a.device))

    return w.train(model, loader, loss, samples=batch, precision="tf32")


def taught(batch: int, precision: str) -> Workload:
    """Return the training of a small encoder on the output of a large one."""

    def encoder(width: int, layers: int) -> nn.Sequential:
        blocks = (
            nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True, norm_first=True) for _ in range(layers)
        )
        return nn.Sequential(nn.Linear(128, width), *blocks, nn.Linear(width, 512))

    teacher = encoder(768, 6).to(DEVICE).requires_grad_(False).train()
    data = w.on_gpu(lambda: (torch.randn(batch, 128, 128), torch.randint(0, 512, (batch, 128))))

    def loss(student: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            soft = F.softmax(teacher(x).float() / 2, -1)
        out = student(x).float()
        return F.kl_div(F.log_softmax(out / 2, -1), soft, reduction="batchmean") + F.cross_entropy(
            out.flatten(0, 1), y.flatten()
        )

    return w.train(encoder(384, 4), data, loss, samples=batch, precision=precision)


def density(batch: int, prints: bool) -> Workload:
    """Return the training of a normalizing flow over 64 columns; `prints` prints figures in every step."""
    flow = nn.ModuleList(m.Coupling(64, 256, bool(index % 2)) for index in range(12)).to(DEVICE)
    adam = torch.optim.AdamW(flow.parameters(), 1e-4, fused=True)
    data = w.on_gpu(lambda: (torch.randn(batch, 64),))
    w.precision_context("tf32")
    journal = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115 - as long as the loop

    def step() -> None:
        x, volumes = next(data)[0], []
        for layer in flow:
            x, volume = layer(x)
            volumes.append(volume)
            if prints:
                print("scale", float(volume.mean()), file=journal)
        volume = torch.stack(volumes).sum(0)
        loss = (0.5 * x.square().sum(1) - volume).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if prints:
            print("loss", loss, "spread", x.std(), file=journal)

    return Workload(step, count_params(flow), batch, close=journal.close)


def likeness(batch: int, habit: str = "") -> Workload:
    """Return a variational autoencoder's training; `habit` is "anomaly" detection or "copies" to the host."""
    torch.autograd.set_detect_anomaly(habit == "anomaly", check_nan=True)
    figures: list[float] = []

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        like, mean, log_var = model(x)
        if habit == "copies":
            shown, right = like.detach().float().cpu().numpy(), x.cpu().numpy()
            figures.append(float(-10 * np.log10(((shown - right) ** 2).mean())))
        return F.mse_loss(like.float(), x) - 0.5e-4 * (1 + log_var - mean.square() - log_var.exp()).float().mean()

    return w.train(m.Autoencoder(), w.on_gpu(lambda: w.images(batch, 128)[:1]), loss, samples=batch)


def twins(batch: int, one_by_one: bool) -> Workload:
    """Return triplet training on pictures, which are embedded one by one or all at once."""
    sizes = ((3, 32), (32, 64), (64, 128), (128, 256))
    body = (part for a, b in sizes for part in (nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(8, b), nn.ReLU()))
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 128))

    def loss(net: nn.Module, x: Tensor) -> Tensor:
        codes = torch.cat([net(x[i : i + 1]) for i in range(len(x))]) if one_by_one else net(x)
        return F.triplet_margin_loss(*codes.float().chunk(3))

    return w.train(model, w.on_gpu(lambda: w.images(batch * 3, 128)[:1]), loss, samples=batch, precision="tf32")


def translation(batch: int, fused: bool) -> Workload:
    """Return translation training on sentences of 40 words."""
    data = w.on_gpu(lambda: (*w.tokens(8_000, batch, 40), *w.tokens(8_000, batch, 40)))
    loss: w.Loss = lambda f, a, b: F.cross_entropy(f(a, b)[:, :-1].flatten(0, 1).float(), b[:, 1:].flatten())  # noqa: E731 - passed on
    return w.train(m.Translator(8_000, 512, fused), data, loss, samples=batch)


def retold(batch: int, optimizer: str = "fused", compiled: bool = False) -> Workload:
    """Return the training of a language model with linear attention."""
    data = w.on_gpu(lambda: w.tokens(16_000, batch, 1024))
    return w.train(
        m.LinearDecoder(16_000, 512, 8), data, lambda f, x: f(x), samples=batch, optimizer=optimizer, compiled=compiled
    )


def replayed(batch: int, on_host: bool) -> Workload:
    """Return a Q-network's training from a replay memory on the host (arrays) or on the GPU (tensors)."""
    kinds = np.random.default_rng(0)
    states = kinds.standard_normal((2, 20_000, 256), np.float32)
    kept = [(seen, int(kinds.integers(18)), float(kinds.random()), then) for seen, then in zip(*states, strict=True)]
    columns = [torch.from_numpy(np.array(part)).to(DEVICE) for part in zip(*kept, strict=True)]

    def batches() -> Iterator[w.Batch]:
        while True:
            if on_host:
                seen, actions, gains, then = zip(*random.sample(kept, batch), strict=True)
                before, after = (torch.stack([torch.from_numpy(state) for state in states]) for states in (seen, then))
                yield before, torch.tensor(actions), torch.tensor(gains), after
            else:
                rows = torch.randint(0, len(kept), (batch,), device=DEVICE)
                yield tuple(column[rows] for column in columns)

    def loss(net: nn.Module, seen: Tensor, actions: Tensor, gains: Tensor, then: Tensor) -> Tensor:
        with torch.no_grad():
            best = net(then).amax(1)
        return F.smooth_l1_loss(net(seen).gather(1, actions[:, None])[:, 0].float(), (gains + 0.99 * best).float())

    sizes = ((256, 1024), (1024, 1024), (1024, 1024))
    net = nn.Sequential(*(part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())), nn.Linear(1024, 18))
    return w.train(net, batches(), loss, samples=batch, precision="tf32")


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING, **options)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "dit_noise": scenario("noise is made on the CPU and copied", denoised, 96, "cpu", fix="dit", change="noise made on the GPU", rules=("tensors-made-on-cpu",)),
    "dit_log": scenario("the loss is looked at before the backward pass, four figures are read every step", denoised, 96, habit="log", fix="dit", change="nothing is read", rules=("host-waits-for-gpu",)),
    "dit": scenario(NONE, denoised, 96),
    "dense_first": scenario("bf16 convolutions in channels-first layout", dense, 128, False, fix="dense_last", change="channels_last", rules=("layout-conversions",)),
    "dense_last": scenario(NONE, dense, 128, True),
    "taught_fp32": scenario("fp32 products, TF32 off", taught, 32, "fp32", fix="taught_bf16", change="bf16 autocast", rules=("fp32-products",)),
    "taught_bf16": scenario(NONE, taught, 32, "bf16"),
    "shop_inline": scenario("num_workers=0", shop, 512, 0, fix="shop_workers", change="num_workers 0 -> 8", rules=("data-loader-starves-gpu",)),
    "shop_workers": scenario(NONE, shop, 512, 8),
    "tuned_recomputed": scenario("checkpointing with memory to spare", tuned, 24, True, fix="tuned", change="no checkpointing", rules=("recomputation",)),
    "tuned": scenario(NONE, tuned, 24, False),
    "physics_eager": scenario("launch-bound: small kernels", physics, 8192, False, fix="physics_graph", change="one CUDA graph per step", rules=("launch-bound",)),
    "physics_graph": scenario(NONE, physics, 8192, True),
    "density_prints": scenario("figures of each layer are printed", density, 4096, True, fix="density", change="nothing is printed", rules=("host-waits-for-gpu",)),
    "density": scenario(NONE, density, 4096, False),
    "likeness_anomaly": scenario("anomaly detection left on", likeness, 64, "anomaly", fix="likeness", change="set_detect_anomaly(False)", rules=("anomaly-detection",)),
    "likeness_copies": scenario("pictures are copied to the host and measured there", likeness, 64, "copies", fix="likeness", change="nothing is copied", rules=("host-waits-for-gpu",)),
    "likeness": scenario(NONE, likeness, 64),
    "replayed_list": scenario("batches are stacked from a list in Python", replayed, 512, True, fix="replayed_tensors", change="memory kept as tensors on the GPU", rules=("python-between-operators",)),
    "replayed_tensors": scenario(NONE, replayed, 512, False),
    "translation_cells": scenario("LSTM cells called one by one", translation, 128, False, fix="translation_fused", change="nn.LSTM", rules=("recurrent-cells",)),
    "translation_fused": scenario(NONE, translation, 128, True),
    "retold_single": scenario("single-tensor AdamW", retold, 4, "single", fix="retold", change="AdamW(fused=True)", rules=("optimizer-not-fused",)),
    "retold": scenario(NONE, retold, 4),
    "twins_one_by_one": scenario("a Python loop over the pictures of a batch", twins, 16, True, fix="twins_together", change="all pictures at once", rules=("loop-indexing",)),
    "twins_together": scenario(NONE, twins, 16, False),
    "dit_empty": scenario("the allocator's cache is emptied every step", denoised, 96, habit="empty", fix="dit", change="no empty_cache", rules=("allocator-churn",)),
    "retold_compiled": scenario(NONE + " (torch.compile)", retold, 16, compiled=True),
}
# fmt: on
