"""Scenarios of the seventh set: typical user loops with one cause of lost time each, or none."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.seventh import models as m
from sawtooth.sample_traces.sets.seventh import sequences as s
from sawtooth.sample_traces.sets.seventh.data import ClickLog, Corpus, People
from sawtooth.sample_traces.sets.seventh.trainer import fit
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third
from sawtooth.sample_traces.workload import Workload

TIMING: dict[str, Any] = {"timed_s": 4.2, "after_s": 0.8, "synced_steps": 5, "first_steps": 4}


def masked_pictures(batch: int, width: int, layers: int, recompute: bool = False, side: int = 224) -> Workload:
    """Return the training of a masked autoencoder with an average of its weights."""
    data = w.on_gpu(lambda: w.images(batch, side)[:1])
    model = m.MaskedPictures(width, layers, side, recompute=recompute)
    return fit(model, data, lambda f, x: {"error": f(x)}, batch, average=True)


def tagged(batch: int, length: int, fused: bool, width: int = 256) -> Workload:
    """Return the tagging of words; padding words do not count."""

    def losses(model: nn.Module, words: Tensor, tags: Tensor) -> Mapping[str, Tensor]:
        out = model(words).float()
        return {"tags": F.cross_entropy(out.flatten(0, 1), tags.flatten(), ignore_index=0), "size": 1e-4 * out.square().mean()}

    data = w.on_gpu(lambda: (torch.randint(0, 20_000, (batch, length)), torch.randint(0, 18, (batch, length))))
    return fit(s.Tagger(20_000, 18, width, fused), data, losses, batch, precision="tf32", clip=5.0)


def demand(batch: int, days: int, fused: bool, width: int = 192) -> Workload:
    """Return the prediction of daily sales by the likelihood of a normal distribution."""

    def losses(model: nn.Module, goods: Tensor, sold: Tensor, known: Tensor) -> Mapping[str, Tensor]:
        mean, spread = model(goods, sold[:, :-1], known[:, 1:]).float().unbind(-1)
        spread = F.softplus(spread) + 1e-3
        return {"likelihood": (spread.log() + ((sold[:, 1:] - mean) / spread).square() / 2).mean()}

    data = w.on_gpu(lambda: (torch.randint(0, 3_000, (batch,)), torch.randn(batch, days), torch.randn(batch, days, 8)))
    return fit(s.Demand(3_000, width, fused), data, losses, batch, precision="tf32")


def poses(batch: int, workers: int, side: int = 256) -> Workload:
    """Return the prediction of people's joints, from pictures that a loader makes with NumPy."""
    loader = DataLoader(People(batch * 100_000, side), batch, num_workers=workers, pin_memory=True, persistent_workers=True)

    def losses(model: nn.Module, x: Tensor, maps: Tensor) -> Mapping[str, Tensor]:
        first, second = model(x)
        return {"first": F.mse_loss(first.float(), maps), "second": F.mse_loss(second.float(), maps)}

    return fit(m.Poses(), iter(loader), losses, batch)


def clicks(batch: int, workers: int) -> Workload:
    """Return the prediction of clicks from a log whose lines are parsed one by one."""
    more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = DataLoader(ClickLog(), batch, num_workers=workers, pin_memory=True, **more)
    losses = lambda f, x, y: {"loss": F.binary_cross_entropy_with_logits(f(x), y.float())}  # noqa: E731 - passed on
    return fit(s.Clicks(26, 40_000), iter(loader), losses, batch, precision="tf32", clip=0.0, lr=1e-3)


def molecules(batch: int, one_by_one: bool, atoms: int = 24) -> Workload:
    """Return the prediction of one figure per molecule, molecule by molecule or all together."""

    def losses(model: nn.Module, kinds: Tensor, bonds: Tensor, figure: Tensor) -> Mapping[str, Tensor]:
        if not one_by_one:
            return {"error": F.l1_loss(model(kinds, bonds).float(), figure)}
        guessed = []
        for row in range(len(kinds)):
            guessed.append(model(kinds[row : row + 1], bonds[row : row + 1]))
        return {"error": F.l1_loss(torch.cat(guessed).float(), figure)}

    bound = lambda: (torch.rand(batch, atoms, atoms) < 0.15) | torch.eye(atoms, dtype=torch.bool)  # noqa: E731
    data = w.on_gpu(lambda: (torch.randint(0, 32, (batch, atoms)), bound(), torch.randn(batch)))
    return fit(s.Atoms(), data, losses, batch, precision="tf32", average=True)


def paths(batch: int, one_by_one: bool, length: int = 64) -> Workload:
    """Return the prediction of where people walk, with the losses added path by path or all at once."""

    def error(model: nn.Module, walked: Tensor, then: Tensor) -> Tensor:
        return F.smooth_l1_loss(model(walked).float(), then)

    def losses(model: nn.Module, walked: Tensor, then: Tensor) -> Mapping[str, Tensor]:
        if not one_by_one:
            return {"way": error(model, walked, then)}
        total = walked.new_zeros(())
        for one, goal in zip(walked, then, strict=True):
            total = total + error(model, one.unsqueeze(0), goal.unsqueeze(0))
        return {"way": total / len(walked)}

    data = w.on_gpu(lambda: (torch.randn(batch, length, 6), torch.randn(batch, length, 2)))
    return fit(s.Paths(), data, losses, batch)


def sessions(batch: int, in_python: bool, length: int = 50, things: int = 50_000) -> Workload:
    """Return the prediction of the next item, compared with randomly drawn items.

    They are drawn one by one in Python until one is new, or all at once on the GPU.
    """
    seen = [[random.randrange(1, things) for _ in range(length + 1)] for _ in range(4_000)]
    kept = torch.tensor(seen).to(w.DEVICE)

    def batches() -> Iterator[w.Batch]:
        while True:
            if in_python:
                rows = random.sample(seen, batch)
                others = []
                for row in rows:
                    known = set(row)
                    drawn: list[int] = []
                    while len(drawn) < length:
                        thing = random.randint(1, things - 1)
                        if thing not in known:
                            drawn.append(thing)
                    others.append(drawn)
                yield torch.tensor(rows), torch.tensor(others)
            else:
                yield (
                    kept[torch.randint(0, len(kept), (batch,), device=w.DEVICE)],
                    torch.randint(1, things, (batch, length), device=w.DEVICE),
                )

    def losses(model: Any, rows: Tensor, others: Tensor) -> Mapping[str, Tensor]:
        out = model(rows[:, :-1])
        right, wrong = ((out * model.things(items)).sum(-1).float() for items in (rows[:, 1:], others))
        return {"right": F.softplus(-right).mean(), "wrong": F.softplus(wrong).mean()}

    return fit(s.ShoppingSessions(things, 64, length), batches(), losses, batch, precision="tf32", clip=0.0)


def texts(batch: int, in_loop: bool, length: int = 200) -> Workload:
    """Return text classification, with word lookup inside the loop or before it."""
    corpus = Corpus(length=length)
    ready = torch.tensor([corpus.numbers(text) for text in corpus.texts]).to(w.DEVICE)
    labels = torch.tensor(corpus.labels).to(w.DEVICE)

    def batches() -> Iterator[w.Batch]:
        while True:
            rows = random.sample(range(len(labels)), batch)
            if in_loop:
                numbers = [corpus.numbers(corpus.texts[row]) for row in rows]
                yield torch.tensor(numbers), torch.tensor([corpus.labels[row] for row in rows])
            else:
                places = torch.tensor(rows).to(w.DEVICE)
                yield ready[places], labels[places]

    losses = lambda f, x, y: {"kind": F.cross_entropy(f(x).float(), y)}  # noqa: E731 - passed on
    return fit(s.Texts(30_002), batches(), losses, batch, average=True)


def actions(batch: int, precision: str, fused: bool, width: int = 768, layers: int = 4, side: int = 224) -> Workload:
    """Return the recognition of actions in clips of eight frames."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 8, side, side), torch.randint(0, 400, (batch,))), 2)
    losses = lambda f, x, y: {"kind": F.cross_entropy(f(x).float(), y, label_smoothing=0.1)}  # noqa: E731 - passed on
    return fit(m.Actions(width, layers, fused, side=side), data, losses, batch, precision=precision)


def operators(batch: int, precision: str, width: int = 2048, depth: int = 6, places: int = 8192) -> Workload:
    """Return the training of an operator network on a field and its slopes at other places."""

    def losses(model: nn.Module, field: Tensor, where: Tensor, there: Tensor) -> Mapping[str, Tensor]:
        out = model(field, where[0])
        return {"value": F.mse_loss(out, there), "slope": 0.1 * F.mse_loss(out.diff(dim=-1), there.diff(dim=-1))}

    data = w.on_gpu(lambda: (torch.randn(batch, 512), torch.rand(1, places, 3), torch.randn(batch, places)))
    return fit(m.Operator(512, width, depth), data, losses, batch, precision=precision)


def branches(batch: int, last: bool, side: int = 224) -> Workload:
    """Return classification with a small Inception, by gradient descent with momentum."""
    losses = lambda f, x, y: {"class": F.cross_entropy(f(x).float(), y, label_smoothing=0.1)}  # noqa: E731 - passed on
    return fit(m.inception(), w.on_gpu(lambda: w.images(batch, side), 2), losses, batch, channels_last=last, sgd=True, lr=0.05)


def bought(batch: int, things: int, length: int = 100, width: int = 512) -> Workload:
    """Return the prediction of the next purchase among all items."""

    def losses(model: Any, seen: Tensor) -> Mapping[str, Tensor]:
        scores = model(seen[:, :-1]) @ model.things.weight.t()
        return {"next": F.cross_entropy(scores.flatten(0, 1), seen[:, 1:].flatten())}

    data = w.on_gpu(lambda: (torch.randint(0, 50_000, (batch, length + 1)),))
    return fit(s.ShoppingSessions(things, width, length, 4), data, losses, batch)


def trends(batch: int) -> Workload:
    """Return the forecast of number series."""
    losses = lambda f, past, then: {"smape": ((f(past) - then).abs() / (then.abs() + 1)).mean()}  # noqa: E731 - passed on
    data = w.on_gpu(lambda: (torch.randn(batch, 168), torch.randn(batch, 24)))
    return fit(s.Trend(168, 24), data, losses, batch, precision="tf32")


def factored(batch: int, side: int = 112) -> Workload:
    """Return the recognition of actions in clips of 16 frames, with convolutions over space and time."""
    model = m.factored_video().to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]  # missing in the stubs
    clip = lambda: torch.randn(batch, 3, 16, side, side).contiguous(memory_format=torch.channels_last_3d)  # noqa: E731
    data = w.on_gpu(lambda: (clip(), torch.randint(0, 400, (batch,))), 2)
    losses = lambda f, x, y: {"kind": F.cross_entropy(f(x).float(), y)}  # noqa: E731 - passed on
    return fit(model, data, losses, batch, sgd=True, lr=0.02)


def codes(batch: int, side: int = 128) -> Workload:
    """Return the training of a VQ-VAE on pictures."""

    def losses(model: nn.Module, x: Tensor) -> Mapping[str, Tensor]:
        again, meant, chosen = (part.float() for part in model(x))
        return {
            "picture": F.mse_loss(again, x),
            "book": F.mse_loss(chosen, meant.detach()),
            "commitment": 0.25 * F.mse_loss(meant, chosen.detach()),
        }

    return fit(m.Codes(), w.on_gpu(lambda: w.images(batch, side)[:1], 2), losses, batch, channels_last=True, average=True)


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING | options.pop("plan", {}), **options)


STACKS: dict[str, Any] = {"profiler": {"with_stack": True}}

# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "mae_recomputed": scenario("every layer's inside is computed again, with memory to spare", masked_pictures, 64, 768, 8, True, fix="mae", change="no checkpointing", rules=("recomputation",)),
    "mae": scenario(NONE, masked_pictures, 64, 768, 8),
    "tagger_cells": scenario("LSTM cells called word by word, in both directions", tagged, 64, 60, False, fix="tagger_fused", change="nn.LSTM(bidirectional=True)", rules=("recurrent-cells",)),
    "tagger_fused": scenario(NONE, tagged, 64, 60, True),
    "poses_two": scenario("two workers make heat maps", poses, 32, 2, fix="poses_eight", change="num_workers 2 -> 8", rules=("data-loader-starves-gpu",)),
    "poses_eight": scenario(NONE, poses, 32, 8),
    "clicks_inline": scenario("num_workers=0: lines of a log are taken apart in the loop's process", clicks, 2048, 0, fix="clicks_workers", change="num_workers 0 -> 6", rules=("data-loader-starves-gpu",)),
    "clicks_workers": scenario(NONE, clicks, 2048, 6),
    "atoms_one_by_one": scenario("a Python loop over the molecules of a batch", molecules, 24, True, fix="atoms_together", change="all molecules at once", rules=("samples-one-by-one",)),
    "atoms_together": scenario(NONE, molecules, 24, False),
    "sessions_python": scenario("things that were not seen are drawn one by one in Python", sessions, 256, True, fix="sessions_drawn", change="drawn at once on the GPU", rules=("python-between-operators",)),
    "sessions_drawn": scenario(NONE, sessions, 256, False),
    "actions_tf32": scenario("no autocast: TF32 products", actions, 16, "tf32", True, fix="actions", change="bf16 autocast", rules=("fp32-products",)),
    "actions_math": scenario("attention written out", actions, 16, "bf16", False, fix="actions", change="F.scaled_dot_product_attention", rules=("unfused-attention",)),
    "actions": scenario(NONE, actions, 16, "bf16", True),
    "paths_one_by_one": scenario("the loss of one path after the other is added up", paths, 16, True, fix="paths_together", change="all paths at once", rules=("samples-one-by-one",), plan=STACKS | {"active": 2}),
    "paths_together": scenario(NONE, paths, 16, False),
    "branches_first": scenario("bf16 convolutions in channels-first layout", branches, 192, False, fix="branches_last", change="channels_last", rules=("layout-conversions",)),
    "branches_last": scenario(NONE, branches, 192, True),
    "operators_fp32": scenario("fp32 products, TF32 off", operators, 4096, "fp32", fix="operators_tf32", change="allow_tf32 = True", rules=("tf32-off",)),
    "operators_tf32": scenario(NONE, operators, 4096, "tf32"),
    "bought_50001": scenario("50001 things: no multiple of 8", bought, 64, 50_001, fix="bought_50008", change="padded to 50008", rules=("misaligned-dimensions",)),
    "bought_50008": scenario(NONE, bought, 64, 50_008),
    "factored": scenario(NONE + " (healthy)", factored, 32),
    "codes": scenario(NONE + " (healthy)", codes, 96),
    "mae_large": scenario(NONE + " (healthy)", masked_pictures, 384, 1024, 12),
    "demand_cells": scenario("GRU cells called day by day", demand, 256, 90, False, fix="demand_fused", change="nn.GRU of two layers", rules=("recurrent-cells",)),
    "demand_fused": scenario(NONE, demand, 256, 90, True),
    "texts_in_loop": scenario("words are cut and looked up in the loop", texts, 64, True, fix="texts_ready", change="looked up before", rules=("python-between-operators",)),
    "texts_ready": scenario(NONE, texts, 64, False),
    "trends_64": scenario("batch 64: the host cannot keep up", trends, 64, fix="trends_8192", change="batch 64 -> 8192", rules=("small-batch",)),
    "trends_8192": scenario(NONE, trends, 8192),
}
# fmt: on
