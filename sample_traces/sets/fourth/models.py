"""Small models in plain PyTorch for the fourth set of sample recordings.

They generate text and captions token by token, classify tables and point clouds, segment images and find objects in them, render
a radiance field, and solve a differential equation.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

Cache = list[tuple[Tensor, Tensor]]  # Keys and values by layer.


def rotated(x: Tensor, position: Tensor) -> Tensor:
    """Return `x` (batch, heads, n, head size) rotated by the rotary embedding of `position` (n)."""
    half = x.shape[-1] // 2
    angle = position[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin, (left, right) = angle.cos().to(x.dtype), angle.sin().to(x.dtype), x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), -1)


def update_kv_cache(
    cache: Cache, index: int, pair: tuple[Tensor, Tensor], position: Tensor, fixed: bool
) -> tuple[Tensor, Tensor]:
    """Add the new tokens' keys and values `pair` to layer `index`; return those of all tokens.

    A `fixed` cache has its final size, and they are written at `position`. Otherwise they are appended.
    """
    if fixed:
        for cached, new in zip(cache[index], pair, strict=True):
            cached.index_copy_(2, position, new)
    elif index == len(cache):
        cache.append(pair)
    else:
        k, v = (torch.cat((cached, new), 2) for cached, new in zip(cache[index], pair, strict=True))
        cache[index] = (k, v)
    return cache[index]


class Captioner(nn.Module):
    """An image captioner: patches, an encoder layer, and a decoder that attends to the patches."""

    def __init__(self, width: int = 384, layers: int = 2, vocab: int = 10000) -> None:
        super().__init__()
        self.patches, self.tokens = nn.Conv2d(3, width, 16, 16), nn.Embedding(vocab, width)
        self.encode = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.cross_q = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.cross_kv = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2 * layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 * layers + 1))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, vocab, bias=False)

    def encode_images(self, images: Tensor) -> Cache:
        """Map (batch, 3, h, w) to the keys and values of its patches, layer by layer."""
        memory = self.encode(self.patches(images).flatten(2).transpose(1, 2))
        pairs = [cross_kv(memory).view(*memory.shape[:2], 2, 6, -1).permute(2, 0, 3, 1, 4) for cross_kv in self.cross_kv]
        return [(pair[0], pair[1]) for pair in pairs]

    def forward(self, tokens: Tensor, position: Tensor, memory: Cache, cache: Cache, fixed: bool) -> Tensor:
        """Return the next words (batch, 1); `tokens` is (batch, 1) at `position` (1)."""
        x = self.tokens(tokens)
        for i, (qkv, cross_q, mlp) in enumerate(zip(self.qkv, self.cross_q, self.mlp, strict=True)):
            q, k, v = qkv(self.norms[3 * i](x)).view(*x.shape[:2], 3, 6, -1).permute(2, 0, 3, 1, 4)
            k, v = update_kv_cache(cache, i, (k, v), position, fixed)
            mask = torch.arange(k.shape[2], device=x.device) <= position[:, None] if fixed else None
            y = F.scaled_dot_product_attention(q, k, v, mask)
            x = x + self.out[2 * i](y.transpose(1, 2).reshape(x.shape))
            q = cross_q(self.norms[3 * i + 1](x)).view(*x.shape[:2], 6, -1).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, *memory[i])
            x = x + self.out[2 * i + 1](y.transpose(1, 2).reshape(x.shape))
            x = x + mlp(self.norms[3 * i + 2](x))
        return self.head(self.norms[-1](x)).argmax(-1)


class TableTransformer(nn.Module):
    """A transformer with one token per column of a table.

    It has attention over the columns, and a gated feed-forward network with many elementwise operators.
    """

    def __init__(self, columns: int = 48, width: int = 192, layers: int = 3) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(columns, width) * 0.1) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Map (batch, columns) to (batch, 10)."""
        x = rows[..., None] * self.weight + self.bias
        for i, (qkv, out, wide, narrow) in enumerate(zip(self.qkv, self.out, self.wide, self.narrow, strict=True)):
            q, k, v = qkv(self.norms[2 * i](x)).view(*x.shape[:2], 3, 6, -1).permute(2, 0, 3, 1, 4)
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)) * 0.5
            left, right = wide(self.norms[2 * i + 1](x)).chunk(2, -1)
            x = x + narrow(left * torch.sigmoid(1.7 * left) * (right + 1.0).clamp(-8.0, 8.0)) * 0.5
        return self.head(x.mean(1))


def point_net() -> nn.Module:
    """Return a PointNet, which maps (batch, 3, points) to (batch, 40).

    It applies the same small network to every point, takes the maximum of each feature, and predicts a class.
    """
    convs = ((3, 64), (64, 64), (64, 128), (128, 512))
    body = (part for a, b in convs for part in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()))
    ends = ((512, 256), (256, 256), (256, 128))
    tail = (part for a, b in ends for part in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()))
    return nn.Sequential(*body, nn.AdaptiveMaxPool1d(1), nn.Flatten(), *tail, nn.Linear(128, 40))


class Segmenter(nn.Module):
    """A network that predicts a class for every pixel.

    It has convolutions at two scales, with dilated ones at the coarse scale, and combines both scales.
    """

    def __init__(self, width: int = 96, classes: int = 19) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.wide = nn.ModuleList(nn.Conv2d(2 * width, width, 3, padding=d, dilation=d) for d in (1, 2, 4, 8))
        self.last = nn.Conv2d(5 * width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to (batch, classes, h / 2, w / 2)."""
        fine = self.stem(images)
        coarse = self.down(fine)
        many = torch.cat([F.relu(conv(coarse)) for conv in self.wide], 1)
        return self.last(torch.cat((F.interpolate(many, scale_factor=2.0, mode="bilinear"), fine), 1))


class Boxes(nn.Module):
    """A one-stage object detector with three levels, which predicts classes and boxes for every cell."""

    def __init__(self, width: int = 64, classes: int = 20) -> None:
        super().__init__()
        widths = (3, width, width, 2 * width, 2 * width, 2 * width)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.SiLU()) for a, b in itertools.pairwise(widths)
        )
        self.heads = nn.ModuleList(nn.Conv2d(2 * width, classes + 4, 1) for _ in range(3))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Map (batch, 3, h, w) to a tensor (batch, cells, classes + 4) per level."""
        levels: list[Tensor] = []
        features = images
        for index, part in enumerate(self.body):
            features = part(features)
            if index >= 2:
                levels.append(features)
        return [head(x).flatten(2).transpose(1, 2) for head, x in zip(self.heads, levels, strict=True)]
