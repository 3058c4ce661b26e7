"""Loops of the eighth set that the engine runs, with their data and losses."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.data import DataLoader

from sawtooth.sample_traces.sets.eighth import large, others, vision
from sawtooth.sample_traces.sets.eighth.data import Events, SoundFiles
from sawtooth.sample_traces.sets.eighth.engine import Engine, train
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.workload import DEVICE, Workload

Losses = dict[str, Tensor]


def pyramid(batch: int, fused: bool, side: int = 256) -> Workload:
    """Return training with a class for every pixel, in fp16 with a scaler.

    The losses are the cross-entropy and the overlap of the areas.
    """

    def losses(net: nn.Module, x: Tensor, y: Tensor) -> Losses:
        out = net(x).float()
        share, right = out.softmax(1), F.one_hot(y, out.shape[1]).movedim(-1, 1)
        overlap = 2 * (share * right).sum((0, 2, 3)) / (share + right).sum((0, 2, 3)).clamp(min=1)
        return {"class": F.cross_entropy(out, y), "overlap": 1 - overlap.mean()}

    data = w.on_gpu(lambda: (torch.randn(batch, 3, side, side), torch.randint(0, 21, (batch, side // 4, side // 4))), 2)
    return train(vision.Pyramid(fused), data, losses, batch, amp="fp16", shares={"overlap": 0.5})


def sounds(batch: int, workers: int) -> Workload:
    """Return the classification of sounds, from spectrograms that loader workers make."""
    loader = DataLoader(
        SoundFiles(batch * 100_000), batch, num_workers=workers, pin_memory=True, persistent_workers=True, shuffle=True
    )
    widths = (1, 64, 128, 256, 512)
    parts = [
        (
            nn.Conv2d(a, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(),
            nn.Conv2d(b, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        for a, b in itertools.pairwise(widths)
    ]
    net = nn.Sequential(*(part for group in parts for part in group), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, 50))
    return train(net, iter(loader), lambda f, x, y: {"kind": F.cross_entropy(f(x).float(), y)}, batch, channels_last=True)


def folding(batch: int, amp: str, recompute: bool, residues: int = 160, width: int = 128, layers: int = 6) -> Workload:
    """Return the prediction of the distances of residues, as bins and as means."""

    def losses(net: nn.Module, chain: Tensor, bins: Tensor) -> Losses:
        out = net(chain).float()
        mean = (out.softmax(-1) * torch.arange(out.shape[-1], device=out.device)).sum(-1)
        return {"bins": F.cross_entropy(out.flatten(0, 2), bins.flatten()), "mean": F.smooth_l1_loss(mean, bins.float())}

    made = lambda: (torch.randint(0, 21, (batch, residues)), torch.randint(0, 64, (batch, residues, residues)))  # noqa: E731
    return train(large.Folding(width, layers, recompute), w.on_gpu(made), losses, batch, amp=amp, shares={"mean": 0.1})


def speaker(batch: int, row_by_row: bool, sounds_long: int = 60, length: int = 480) -> Workload:
    """Return the prediction of spectrograms of spoken texts, and of the duration of each sound."""

    def losses(net: nn.Module, sounds: Tensor, frames: Tensor, mel: Tensor) -> Losses:
        out, long = net(sounds, frames, length)
        return {"mel": F.l1_loss(out.float(), mel), "long": F.mse_loss(long.float(), frames.float().log1p())}

    made = lambda: (  # noqa: E731
        torch.randint(0, 80, (batch, sounds_long)),
        torch.randint(2, 9, (batch, sounds_long)),
        torch.randn(batch, length, 80),
    )
    return train(others.Speaker(row_by_row), w.on_gpu(made), losses, batch)


def detector(batch: int, last: bool, side: int = 320) -> Workload:
    """Return box detection at three scales: presence, class and position."""

    def losses(net: nn.Module, x: Tensor, *aims: Tensor) -> Losses:
        sums = {name: x.new_zeros(()) for name in ("there", "kind", "place")}
        for out, aim in zip(net(x), aims, strict=True):
            maps = out.float().unflatten(1, (3, 25))
            there = aim[:, :, 4]
            sums["there"] = sums["there"] + F.binary_cross_entropy_with_logits(maps[:, :, 4], there)
            kinds = F.binary_cross_entropy_with_logits(maps[:, :, 5:], aim[:, :, 5:], reduction="none").mean(2)
            sums["kind"] = sums["kind"] + (kinds * there).sum() / there.sum().clamp(min=1)
            place = F.smooth_l1_loss(maps[:, :, :4].sigmoid(), aim[:, :, :4], reduction="none").sum(2)
            sums["place"] = sums["place"] + (place * there).sum() / there.sum().clamp(min=1)
        return sums

    sides = (side // 8, side // 16, side // 32)
    made = lambda: (torch.randn(batch, 3, side, side), *((torch.rand(batch, 3, 25, s, s) < 0.1).float() for s in sides))  # noqa: E731
    return train(vision.Detector(), w.on_gpu(made, 2), losses, batch, channels_last=last, shares={"place": 5.0}, max_norm=10.0)


def events(batch: int, workers: int) -> Workload:
    """Return the prediction of which customers leave, from actions in JSON lines."""
    more: dict[str, Any] = {"persistent_workers": True} if workers else {}
    loader = DataLoader(Events(batch * 100_000), batch, num_workers=workers, pin_memory=True, **more)
    return train(
        Leaving(),
        iter(loader),
        lambda f, *x: {"left": F.binary_cross_entropy_with_logits(f(*x[:2]).float(), x[2].float())},
        batch,
        amp="tf32",
    )


class Leaving(nn.Module):
    """Gated layers over the actions of a customer, and attention that adds them up."""

    def __init__(self, items: int = 20_000, width: int = 128) -> None:
        super().__init__()
        self.items, self.figures = nn.Embedding(items, width), nn.Linear(3, width)
        self.layers = nn.GRU(width, width, 2, batch_first=True)
        self.weigh, self.out = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, items: Tensor, figures: Tensor) -> Tensor:
        """Map (batch, n) and (batch, n, 3) to (batch)."""
        x = self.layers(self.items(items) + self.figures(figures))[0]
        return self.out((self.weigh(x).softmax(1) * x).sum(1))[:, 0]


def columns(batch: int, filled: int) -> Workload:
    """Return the prediction of clicks from a hundred columns of 25 figures, and an age."""
    made = lambda: (torch.randint(0, 1_000, (batch, 100)), torch.rand(batch, 1), torch.randint(0, 2, (batch,)).float())  # noqa: E731
    losses = lambda f, rows, age, y: {"click": F.binary_cross_entropy_with_logits(f(rows, age).float(), y)}  # noqa: E731
    return train(large.Crosses(100, 1_000, 25, filled=filled), w.on_gpu(made, 2), losses, batch)


def edits(a: list[int], b: list[int]) -> int:
    """Return Levenshtein's distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        left, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (x != y))
    return row[-1]


def lines(batch: int, decoded: bool, wide: int = 256, letters: int = 24) -> Workload:
    """Return the training on lines of handwriting by CTC.

    Each step may also compute the rate of wrong letters.
    """
    wrong: list[float] = []
    long = torch.full((batch,), letters)

    def losses(net: nn.Module, x: Tensor, y: Tensor) -> Losses:
        out = net(x).float().log_softmax(-1)
        if decoded:
            total = 0
            for row, right in zip(out.argmax(-1).t().tolist(), y.tolist(), strict=True):
                read = [a for k, a in enumerate(row) if a and (k == 0 or a != row[k - 1])]
                total += edits(read[: 2 * letters], right)
            wrong.append(total / batch / letters)
        return {"ctc": F.ctc_loss(out, y, torch.full((batch,), len(out)), long, zero_infinity=True)}

    data = w.on_gpu(lambda: (torch.randn(batch, 1, 32, wide), torch.randint(1, 80, (batch, letters))))
    return train(vision.TextReader(), data, losses, batch)


def one_by_one(engine: Engine) -> None:
    """Move the target network towards the online network, weight by weight."""
    with torch.no_grad():
        for kept, live in zip(engine.model.target.parameters(), engine.model.online.parameters(), strict=True):  # type: ignore[union-attr]
            kept.data = 0.99 * kept.data + 0.01 * live.data


def together(engine: Engine) -> None:
    """Move the target network towards the online network, all weights at once."""
    kept, live = (list(net.parameters()) for net in (engine.model.target, engine.model.online))  # type: ignore[union-attr]
    with torch.no_grad():
        torch._foreach_lerp_(kept, live, 0.01)


def views(batch: int, weight_by_weight: bool, side: int = 64) -> Workload:
    """Return the training on two views of pictures that predict each other."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, side, side), torch.randn(batch, 3, side, side)))
    hook = one_by_one if weight_by_weight else together
    return train(vision.TwoViews(), data, lambda f, x, y: {"apart": f(x, y)}, batch, channels_last=True, hooks=(hook,))


def fields(batch: int, side: int = 128) -> Workload:
    """Return the prediction of a later field and its slopes from the present field."""

    def losses(net: nn.Module, x: Tensor, y: Tensor) -> Losses:
        out = net(x)
        slopes = sum((F.mse_loss(out.diff(dim=d), y.diff(dim=d)) for d in (2, 3)), out.new_zeros(()))
        return {"field": (out - y).flatten(1).norm(dim=1).mean() / y.flatten(1).norm(dim=1).mean(), "slopes": slopes}

    data = w.on_gpu(lambda: (torch.randn(batch, 3, side, side), torch.randn(batch, 1, side, side)), 2)
    return train(others.Fourier(64, 16), data, losses, batch, amp="tf32")


def stereo(batch: int, side: int = 256) -> Workload:
    """Return the prediction of the disparity of stereo pictures; later guesses have more weight."""

    def losses(net: nn.Module, left: Tensor, right: Tensor, far: Tensor) -> Losses:
        guesses = net(left, right)
        return {
            "far": sum(
                (0.9 ** (len(guesses) - k) * (g.float() - far).abs().mean() for k, g in enumerate(guesses, 1)),
                far.new_zeros(()),
            )
        }

    made = lambda: (*(torch.randn(batch, 3, side, 2 * side) for _ in range(2)), torch.rand(batch, 1, side // 4, side // 2))  # noqa: E731
    return train(vision.Stereo(), w.on_gpu(made, 2), losses, batch, channels_last=True)


def documents(batch: int, on_host: bool, length: int = 2048, near: int = 256, width: int = 512) -> Workload:
    """Return the classification of long documents.

    Words attend to nearby words, and the first word attends to all words.
    """
    places = torch.arange(length)

    def masked(where: torch.device | str) -> Tensor:
        far = places[:, None] - places[None]
        mask = (far.abs() <= near) | (places[:, None] == 0) | (places[None] == 0)
        return torch.zeros(length, length).masked_fill(~mask, float("-inf")).to(where)

    kept = masked(DEVICE)

    def losses(net: nn.Module, words: Tensor, kinds: Tensor) -> Losses:
        out = net(words, masked(words.device) if on_host else kept).float()
        return {"kinds": F.binary_cross_entropy_with_logits(out, kinds)}

    data = w.on_gpu(lambda: (torch.randint(0, 30_000, (batch, length)), torch.randint(0, 2, (batch, 30)).float()))
    return train(others.DocumentModel(30_000, width, 6, length), data, losses, batch)


def smoothed(logits: Tensor, aims: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy with smoothed labels, and a penalty on the logits' sum."""
    logits = logits.float()
    top = torch.logsumexp(logits, -1, keepdim=True)
    chances = logits - top
    right = chances.gather(-1, aims[..., None])[..., 0]
    return -(0.9 * right + 0.1 * chances.mean(-1)).mean(), 1e-4 * top.square().mean()


def coder(batch: int, compiled: bool, length: int = 1024, words: int = 50_304, width: int = 768, layers: int = 6) -> Workload:
    """Return next-token training on programs."""
    head = torch.compile(smoothed) if compiled else smoothed

    def losses(net: nn.Module, text: Tensor) -> Losses:
        next_word, sums = head(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        return {"next": next_word, "sums": sums}

    data = w.on_gpu(lambda: (torch.randint(0, words, (batch, length + 1)),))
    return train(large.Coder(words, width, layers, length), data, losses, batch)


def hearts(batch: int, length: int = 1000) -> Workload:
    """Return the prediction of heart diseases, of which several can be present at once."""
    data = w.on_gpu(lambda: (torch.randn(batch, 12, length), torch.randint(0, 2, (batch, 5)).float()))
    return train(others.heart(), data, lambda f, x, y: {"kinds": F.binary_cross_entropy_with_logits(f(x).float(), y)}, batch)
