"""Vision models of the eighth set, such as a pyramid transformer, a detector and a stereo network."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class ReducedAttention(nn.Module):
    """Attention to a downscaled picture, as in a pyramid vision transformer; fused or unfused."""

    def __init__(self, width: int, heads: int, smaller: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, smaller, smaller) if smaller > 1 else None
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, side: int) -> Tensor:
        """Map (batch, side², width) to the same shape."""
        b, n, width = x.shape
        q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
        if self.reduce is not None:
            x = self.norm(self.reduce(x.transpose(1, 2).reshape(b, width, side, side)).flatten(2).transpose(1, 2))
        k, v = self.kv(x).view(b, -1, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
            y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class PyramidBlock(nn.Module):
    """Attention, then a perceptron that contains a depthwise convolution."""

    def __init__(self, width: int, heads: int, smaller: int, fused: bool) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = ReducedAttention(width, heads, smaller, fused)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.deep = nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width)

    def forward(self, x: Tensor, side: int) -> Tensor:
        """Map (batch, side², width) to the same shape."""
        x = x + self.attention(self.norm_1(x), side)
        h = self.up(self.norm_2(x))
        b, _n, wide = h.shape
        h = self.deep(h.transpose(1, 2).reshape(b, wide, side, side)).flatten(2).transpose(1, 2)
        return x + self.down(F.gelu(h))


class Pyramid(nn.Module):
    """A network that predicts a class for every fourth pixel, from attention at four scales."""

    def __init__(self, fused: bool, widths: tuple[int, ...] = (64, 128, 320, 512), depth: int = 2, classes: int = 21) -> None:
        super().__init__()
        self.patches = nn.ModuleList(
            nn.Conv2d(a, b, 7 if a == 3 else 3, 4 if a == 3 else 2, 3 if a == 3 else 1)
            for a, b in zip((3, *widths), widths, strict=False)
        )
        self.stages = nn.ModuleList(
            nn.ModuleList(PyramidBlock(width, width // 64, smaller, fused) for _ in range(depth))
            for width, smaller in zip(widths, (4, 2, 1, 1), strict=True)
        )
        self.joins = nn.ModuleList(nn.Linear(width, 256) for width in widths)
        self.head = nn.Sequential(
            nn.Conv2d(1024, 256, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU(), nn.Conv2d(256, classes, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes, side ÷ 4, side ÷ 4)."""
        scales: list[Tensor] = []
        for patch, blocks, join in zip(self.patches, self.stages, self.joins, strict=True):
            x = patch(x)
            b, width, side, _ = x.shape
            h = x.flatten(2).transpose(1, 2)
            for block in blocks:  # type: ignore[attr-defined]  # a ModuleList
                h = block(h, side)
            x = h.transpose(1, 2).reshape(b, width, side, side)
            level = join(h).transpose(1, 2).reshape(b, 256, side, side)
            scales.append(F.interpolate(level, scales[0].shape[-2:], mode="bilinear") if scales else level)
        return self.head(torch.cat(scales, 1))


def unit(a: int, b: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and SiLU."""
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU(inplace=True))


class CrossStage(nn.Module):
    """A stage in which half of the channels go through residual blocks and the other half bypass them."""

    def __init__(self, a: int, b: int, depth: int) -> None:
        super().__init__()
        half = b // 2
        self.through, self.past, self.join = unit(a, half), unit(a, half), unit(2 * half, b)
        self.blocks = nn.ModuleList(nn.Sequential(unit(half, half), unit(half, half, 3)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, a, h, w) to (batch, b, h, w)."""
        y = self.through(x)
        for block in self.blocks:
            y = y + block(y)
        return self.join(torch.cat((y, self.past(x)), 1))


class Detector(nn.Module):
    """A box detector with three scales and cross-stage blocks, as in YOLO."""

    def __init__(self, width: int = 48, kinds: int = 20, anchors: int = 3) -> None:
        super().__init__()
        w = [width * 2**k for k in range(5)]
        self.stem = unit(3, w[0], 3, 2)
        self.down = nn.ModuleList(
            nn.Sequential(unit(a, b, 3, 2), CrossStage(b, b, depth))
            for a, b, depth in zip(w, w[1:], (1, 2, 3, 1), strict=False)
        )
        self.up_1, self.up_2 = CrossStage(w[4] + w[3], w[3], 1), CrossStage(w[3] + w[2], w[2], 1)
        self.heads = nn.ModuleList(nn.Conv2d(c, anchors * (5 + kinds), 1) for c in (w[2], w[3], w[4]))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map (batch, 3, side, side) to three maps of (batch, anchors (5 + kinds), h, w)."""
        x = self.stem(x)
        seen = []
        for stage in self.down:
            x = stage(x)
            seen.append(x)
        middle = self.up_1(torch.cat((F.interpolate(seen[3], scale_factor=2), seen[2]), 1))
        low = self.up_2(torch.cat((F.interpolate(middle, scale_factor=2), seen[1]), 1))
        return [head(part) for head, part in zip(self.heads, (low, middle, seen[3]), strict=True)]


class Shuffle(nn.Module):
    """A ShuffleNet unit: half of the channels are transformed, then all are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            *(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True)),
            *(nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half)),
            *(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width, h, w) to the same shape."""
        left, right = x.chunk(2, 1)
        y = torch.cat((left, self.body(right)), 1)
        b, c, h, w = y.shape
        return y.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)


class TwoViews(nn.Module):
    """BYOL: a network predicts the output of its moving average for another view."""

    def __init__(self, width: int = 116, depth: int = 12, out: int = 256) -> None:
        super().__init__()
        stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        body = nn.Sequential(stem, *(Shuffle(width) for _ in range(depth)), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.online = nn.Sequential(body, nn.Linear(width, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, out))
        self.predictor = nn.Sequential(nn.Linear(out, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, out))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Map two views, (batch, 3, side, side) each, to the errors of their predictions of each other."""
        with torch.no_grad():
            aims = self.target(other), self.target(one)
        guesses = self.predictor(self.online(one)), self.predictor(self.online(other))
        return sum(
            (2 - 2 * F.cosine_similarity(g.float(), a.float()).mean() for g, a in zip(guesses, aims, strict=True)),
            one.new_zeros(()),
        )


class TextReader(nn.Module):
    """A CRNN: convolutions over a line of handwriting, two recurrent layers, and a letter per column."""

    def __init__(self, letters: int = 80, width: int = 256) -> None:
        super().__init__()
        sizes = ((1, 64, 2), (64, 128, 2), (128, 256, (2, 1)), (256, 256, (2, 1)))
        parts = [
            (nn.Conv2d(a, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True), nn.MaxPool2d(pool))
            for a, b, pool in sizes
        ]
        self.seen = nn.Sequential(*(part for group in parts for part in group))
        self.both = nn.LSTM(512, width, 2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, letters)

    def forward(self, lines: Tensor) -> Tensor:
        """Map (batch, 1, 32, w) to (w ÷ 4, batch, letters)."""
        x = self.seen(lines).flatten(1, 2).transpose(1, 2)
        return self.out(self.both(x)[0]).transpose(0, 1)


class Stereo(nn.Module):
    """A small RAFT-Stereo, whose gated convolutional unit refines the disparity eight times."""

    def __init__(self, width: int = 128, reach: int = 32, times: int = 8) -> None:
        super().__init__()
        self.reach, self.times = reach, times
        self.features = nn.Sequential(unit(3, 64, 7, 2), unit(64, 96, 3, 2), unit(96, width, 3), nn.Conv2d(width, width, 1))
        self.context = nn.Sequential(unit(3, 64, 7, 2), unit(64, width, 3, 2), nn.Conv2d(width, width, 3, 1, 1))
        self.motion = nn.Sequential(unit(reach + 1, 96), unit(96, 64, 3))
        self.gates, self.new = nn.Conv2d(width + 64, 2 * width, 3, 1, 1), nn.Conv2d(width + 64, width, 3, 1, 1)
        self.change = nn.Sequential(unit(width, 128, 3), nn.Conv2d(128, 1, 3, 1, 1))

    def forward(self, left: Tensor, right: Tensor) -> list[Tensor]:
        """Map two (batch, 3, h, w) to successive guesses (batch, 1, h ÷ 4, w ÷ 4), each refining the last."""
        a, b = self.features(left), self.features(right)
        volume = torch.stack([(a * torch.roll(b, k, 3)).mean(1) for k in range(self.reach)], 1)
        state = torch.tanh(self.context(left))
        far = a.new_zeros(len(a), 1, *a.shape[-2:])
        guesses = []
        for _ in range(self.times):
            seen = self.motion(torch.cat((volume, far.detach().to(volume.dtype)), 1))
            reset, keep = torch.sigmoid(self.gates(torch.cat((state, seen), 1))).chunk(2, 1)
            fresh = torch.tanh(self.new(torch.cat((reset * state, seen), 1)))
            state = (1 - keep) * state + keep * fresh
            far = far.detach() + self.change(state)
            guesses.append(far)
        return guesses
