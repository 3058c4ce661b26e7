"""Vision models of the eighth set, such as a pyramid transformer, a detector and a stereo network."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class ReducedAttention(nn.Module):
    """Attention to a downscaled image, as in a pyramid vision transformer; fused or unfused."""

    def __init__(self, width: int, heads: int, reduction: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, reduction, reduction) if reduction > 1 else None
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
    """Attention, then an MLP that contains a depthwise convolution."""

    def __init__(self, width: int, heads: int, reduction: int, fused: bool) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = ReducedAttention(width, heads, reduction, fused)
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
            nn.ModuleList(PyramidBlock(width, width // 64, reduction, fused) for _ in range(depth))
            for width, reduction in zip(widths, (4, 2, 1, 1), strict=True)
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
