"""Scenarios of the fifth set: everyday loops of new models, each with one planted problem or none.

A pair differs in one change. They were recorded on an H200 with a slow host after the analysis was settled (`record.py --set
fifth`). `docs/evidence/accuracy.md` says what was inspected first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.first.models import python_work
from sawtooth.sample_traces.sets.fourth.scenarios import scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.workload import DEVICE, Workload

WORDS = 16_000
COLUMNS, WIDTH = 40, 16  # Columns of a click model's input, and features per column.


class Speech(nn.Module):
    """Two GRU layers over a spectrogram, as one module or cell by cell."""

    def __init__(self, fused: bool, width: int = 512) -> None:
        super().__init__()
        self.front, self.head = nn.Linear(80, width), nn.Linear(width, 64)
        self.layers = nn.GRU(width, width, 2, batch_first=True) if fused else None
        self.cells = nn.ModuleList() if fused else nn.ModuleList(nn.GRUCell(width, width) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, 80) to (batch, time, 64)."""
        x = self.front(x)
        if self.layers is not None:
            x, _ = self.layers(x)
        for cell in self.cells:
            state, out = x.new_zeros(x.shape[0], x.shape[2]), []
            for t in range(x.shape[1]):
                state = cell(x[:, t], state)
                out.append(state)
            x = torch.stack(out, 1)
        return self.head(x)


def speech(batch: int, time: int, fused: bool) -> Workload:
    """Return the prediction of a class for every frame of a recording."""
    data = w.on_gpu(lambda: (torch.randn(batch, time, 80), torch.randint(0, 64, (batch, time))))
    loss: w.Loss = lambda f, x, y: F.cross_entropy(f(x).flatten(0, 1).float(), y.flatten())  # noqa: E731 - passed on
    return w.train(Speech(fused), data, loss, samples=batch, precision="tf32")


class Sharper(nn.Module):
    """Super-resolution with residual blocks without norms and a pixel shuffle, on three channels."""

    def __init__(self, width: int = 96, blocks: int = 10) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.tail = nn.Sequential(
            nn.Conv2d(width, width * 4, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to (batch, 3, 2 h, 2 w)."""
        x = self.head(x)
        for block in self.body:
            x = x + 0.1 * block(x)
        return self.tail(x)


def sharper(batch: int, last: bool) -> Workload:
    """Return super-resolution of 96 × 96 images by a factor of two, in fp16."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 96, 96), torch.randn(batch, 3, 192, 192)))
    loss: w.Loss = lambda f, x, y: F.l1_loss(f(x).float(), y)  # noqa: E731 - passed on
    return w.train(Sharper(), data, loss, samples=batch, precision="fp16", channels_last=last)


class Squeeze(nn.Module):
    """An inverted bottleneck with squeeze and excitation, as in EfficientNet."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        wide = a * 4
        self.keep = a == b and stride == 1
        self.body = nn.Sequential(
            *(nn.Conv2d(a, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU()),
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, a // 4, 1), nn.SiLU(), nn.Conv2d(a // 4, wide, 1), nn.Sigmoid()
        )
        self.narrow = nn.Sequential(nn.Conv2d(wide, b, 1, bias=False), nn.BatchNorm2d(b))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, a, h, w) to (batch, b, h / stride, w / stride)."""
        y = self.body(x)
        y = self.narrow(y * self.gate(y))
        return x + y if self.keep else y


def efficient(batch: int, optimizer: str) -> Workload:
    """Return classification with ten inverted bottlenecks."""
    sizes = [
        (32, 32, 1),
        (32, 48, 2),
        *((48, 48, 1),) * 2,
        (48, 96, 2),
        *((96, 96, 1),) * 2,
        (96, 192, 2),
        *((192, 192, 1),) * 2,
    ]
    ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 1000))
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), *(Squeeze(*size) for size in sizes), *ends)
    data = w.on_gpu(lambda: w.images(batch, 160))
    return w.train(model, data, w.classify, samples=batch, optimizer=optimizer, channels_last=True)


class Text(nn.Module):
    """A text encoder."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.zeros(256, width))
        blocks = (
            nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, activation="gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.body = nn.Sequential(*blocks)

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, width)."""
        return self.body(self.tokens(words) + self.places[: words.shape[1]])


class Tagged(nn.Module):
    """An encoder with a classification head."""

    def __init__(self, body: Text, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, classes)."""
        return self.head(self.body(words).mean(1))


def masked(batch: int, fixed: bool) -> Workload:
    """Return masked-word training with three boolean masks, or with a fixed number of masked words."""
    data = w.on_gpu(lambda: (torch.randint(0, WORDS, (batch, 256)), torch.rand(batch, 256)))

    def loss(model: Any, words: Tensor, dice: Tensor) -> Tensor:
        hidden = model.body(words)
        if fixed:
            places = dice.flatten().topk(batch * 38, largest=False).indices
            return F.cross_entropy(model.head(hidden.flatten(0, 1)[places]).float(), words.flatten()[places])
        total = dice.new_zeros(())
        for low in (0.0, 0.05, 0.10):
            mask = (dice >= low) & (dice < low + 0.05)
            total = total + F.cross_entropy(model.head(hidden[mask]).float(), words[mask])
        return total / 3

    return w.train(Tagged(Text(512, 6), 512, WORDS), data, loss, samples=batch)


class Reviews(Dataset[tuple[Tensor, int]]):
    """Texts that Python splits into words, one text per access."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return 128 words and a class."""
        words, seed = [], index
        for _ in range(128):
            seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
            word = "".join(chr(97 + (seed >> shift) % 26) for shift in (3, 7, 11, 15, 19))
            words.append(hash(word) % WORDS)
        return torch.tensor(words), index % 5


def reviews(batch: int, workers: int) -> Workload:
    """Return text classification."""
    more: dict[str, Any] = {"persistent_workers": True} if workers else {}
    loader = iter(DataLoader(Reviews(), batch, num_workers=workers, pin_memory=True, **more))
    return w.train(Tagged(Text(384, 4), 384, 5), loader, w.classify, samples=batch)


def clips(batch: int, pin: bool) -> Workload:
    """Return the classification of short videos from host memory."""
    sizes: tuple[tuple[int, int, Any], ...] = ((3, 32, (1, 2, 2)), (32, 64, 2), (64, 128, 2), (128, 256, 2))
    body = (part for a, b, s in sizes for part in (nn.Conv3d(a, b, 3, s, 1), nn.BatchNorm3d(b), nn.ReLU()))
    model = nn.Sequential(*body, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(256, 400))
    data = w.pinned(lambda: (torch.randn(batch, 3, 16, 112, 112), torch.randint(0, 400, (batch,))), pin=pin)
    return w.train(model, data, w.classify, samples=batch)


def features(batch: int, together: bool) -> Workload:
    """Return a click model whose columns are copied one by one while the host waits, or as one tensor."""
    columns = [torch.randn(batch, WIDTH).pin_memory() for _ in range(COLUMNS)]
    table = torch.cat(columns, 1).pin_memory()
    clicked = torch.rand(batch, 1)

    def batches() -> Iterator[w.Batch]:
        there = clicked.to(DEVICE)
        while True:
            yield table if together else torch.cat([column.to(DEVICE) for column in columns], 1), there

    sizes = ((COLUMNS * WIDTH, 2048), (2048, 2048))
    model = nn.Sequential(*(part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())), nn.Linear(2048, 1))
    loss: w.Loss = lambda f, x, y: F.binary_cross_entropy_with_logits(f(x).float(), y)  # noqa: E731 - passed on
    return w.train(model, batches(), loss, samples=batch)


class Molecule(nn.Module):
    """A network of messages between atoms, summed at their target."""

    def __init__(self, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.kinds, self.last = nn.Embedding(32, width), nn.Linear(width, 1)
        self.mix = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers)
        )

    def forward(self, kinds: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Map atoms (n) and the ends of their bonds (e) to a value of each atom (n, 1)."""
        x = self.kinds(kinds)
        for mix in self.mix:
            message = mix(torch.cat((x[source], x[target]), 1)).to(x.dtype)
            x = x + torch.zeros_like(x).index_add(0, target, message)
        return self.last(x)


def molecules(batch: int, deterministic: bool) -> Workload:
    """Return training on energies of atoms, with or without deterministic algorithms.

    cuBLAS needs CUBLAS_WORKSPACE_CONFIG=:4096:8 for deterministic algorithms.
    """
    torch.use_deterministic_algorithms(deterministic)
    atoms, bonds = batch * 24, batch * 96
    data = w.on_gpu(
        lambda: (
            torch.randint(0, 32, (atoms,)),
            *(torch.randint(0, atoms, (bonds,)) for _ in range(2)),
            torch.randn(atoms, 1),
        )
    )
    loss: w.Loss = lambda f, kinds, a, b, y: F.mse_loss(f(kinds, a, b).float(), y)  # noqa: E731 - passed on
    return w.train(Molecule(), data, loss, samples=batch, precision="tf32")


def agent(batch: int, python_s: float) -> Workload:
    """Return the training of a policy whose environment is Python code on the host before every step."""
    seen = w.on_gpu(lambda: (torch.randn(batch, 128), torch.randint(0, 18, (batch,))))

    def batches() -> Iterator[w.Batch]:
        while True:
            python_work(python_s)
            yield next(seen)

    sizes = ((128, 1024), (1024, 1024))
    model = nn.Sequential(*(part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())), nn.Linear(1024, 18))
    return w.train(model, batches(), w.classify, samples=batch)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "speech_cells": scenario("GRU cells called one by one", speech, 32, 60, False, fix="speech_fused", change="nn.GRU", rules=("recurrent-cells",)),
    "speech_fused": scenario(NONE, speech, 32, 60, True),
    "sharper_first": scenario("fp16 convolutions in channels-first layout", sharper, 32, False, fix="sharper_last", change="channels_last", rules=("layout-conversions",)),
    "sharper_last": scenario(NONE, sharper, 32, True),
    "efficient_single": scenario("single-tensor AdamW", efficient, 32, "single", fix="efficient_fused", change="AdamW(fused=True)", rules=("optimizer-not-fused",)),
    "efficient_fused": scenario(NONE, efficient, 32, "fused"),
    "masked_rows": scenario("boolean masks", masked, 32, False, fix="masked_fixed", change="a fixed number of places", rules=("boolean-mask-waits",)),
    "masked_fixed": scenario(NONE, masked, 32, True),
    "reviews_inline": scenario("num_workers=0", reviews, 128, 0, fix="reviews_workers", change="num_workers 0 -> 8", rules=("data-loader-starves-gpu",)),
    "reviews_workers": scenario(NONE, reviews, 128, 8),
    "clips_pageable": scenario("pageable clips", clips, 16, False, fix="clips_pinned", change="pin_memory", rules=("pageable-copies",)),
    "clips_pinned": scenario(NONE, clips, 16, True),
    "features_apart": scenario("40 short copies a step, the host waits for each", features, 4096, False, fix="features_together", change="one copy", rules=("small-copies",)),
    "features_together": scenario(NONE, features, 4096, True),
    "molecules_deterministic": scenario("deterministic algorithms", molecules, 512, True, fix="molecules_free", change="use_deterministic_algorithms(False)", rules=("deterministic-algorithms",)),
    "molecules_free": scenario(NONE, molecules, 512, False),
    "agent_python": scenario("Python before every step", agent, 4096, 0.008, fix="agent_quick", change="no Python", rules=("python-between-operators",)),
    "agent_quick": scenario(NONE, agent, 4096, 0.0),
}
# fmt: on
