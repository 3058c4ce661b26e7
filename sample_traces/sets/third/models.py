"""Models of the third set, such as state spaces, windows, detection, diffusion and speech."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class SelectiveScan(nn.Module):
    """A Mamba layer whose recurrence is a Python loop over time."""

    def __init__(self, width: int, states: int = 16) -> None:
        super().__init__()
        inner = 2 * width
        self.norm, self.into = nn.LayerNorm(width), nn.Linear(width, 2 * inner, bias=False)
        self.near = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.time_step, self.ports = nn.Linear(inner, inner), nn.Linear(inner, 2 * states, bias=False)
        self.decay = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(inner, 1))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = F.silu(self.near(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        time_step = F.softplus(self.time_step(u)).float()[..., None]
        enter, leave = self.ports(u).float().chunk(2, -1)
        keep, add = torch.exp(-time_step * self.decay.exp()), time_step * enter[:, :, None] * u.float()[..., None]
        state, states = torch.zeros_like(add[:, 0]), []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + add[:, t]
            states.append((state * leave[:, t, None]).sum(-1))
        return x + self.out(torch.stack(states, 1) * F.silu(gate))


class GroupedBlock(nn.Module):
    """ResNeXt's bottleneck: a 3 × 3 convolution in 32 groups."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 2
        convs = (nn.Conv2d(inputs, inner, 1), nn.Conv2d(inner, inner, 3, stride, 1, groups=32), nn.Conv2d(inner, outputs, 1))
        parts = [part for conv in convs for part in (conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU())]
        self.body = nn.Sequential(*parts[:-1])
        self.past = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, outputs, h / stride, w / stride)."""
        return F.relu(self.past(x) + self.body(x))


def resnext() -> nn.Module:
    """A ResNeXt of three blocks."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (GroupedBlock(64, 256, 1), GroupedBlock(256, 512, 2), GroupedBlock(512, 1024, 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


class WindowBlock(nn.Module):
    """Attention within windows of 7 × 7 with a bias by relative position, and a feed-forward network."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.within = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.bias = nn.Parameter(torch.zeros(heads, 49, 49))

    def forward(self, x: Tensor) -> Tensor:
        """Map (windows, 49, width) to the same shape."""
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, self.bias.to(q.dtype).expand(len(x), -1, -1, -1))
        else:
            y = ((q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + self.bias).softmax(-1).to(v.dtype) @ v
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.within(self.norms[1](x))


class Swin(nn.Module):
    """Two stages of windowed attention; the second shifts its windows."""

    def __init__(self, fused: bool, width: int = 128) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(WindowBlock(width, 4, fused) for _ in range(2))
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, 224, 224) to (batch, 1000)."""
        x = self.patches(images).permute(0, 2, 3, 1)
        batch, side, _, width = x.shape
        for index, block in enumerate(self.blocks):
            x = torch.roll(x, (3, 3), (1, 2)) if index else x
            cut = x.view(batch, side // 7, 7, side // 7, 7, width).transpose(2, 3).reshape(-1, 49, width)
            x = block(cut).view(batch, side // 7, side // 7, 7, 7, width).transpose(2, 3).reshape(batch, side, side, width)
        return self.head(x.mean((1, 2)))


class Sage(nn.Module):
    """GraphSAGE: combines each node with the mean of its neighbours."""

    def __init__(self, width: int = 512, layers: int = 2, classes: int = 40) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.near = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return (nodes, classes); `x` is (nodes, width), `edges` is (2, edges) int64."""
        degree = torch.zeros(len(x), 1, device=x.device).index_add(0, edges[1], torch.ones_like(edges[1])[:, None].float())
        for own, near in zip(self.own, self.near, strict=True):
            mean = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]) / degree.clamp(min=1.0)
            x = F.relu(own(x) + near(mean))
        return self.head(x)


class Detr(nn.Module):
    """Box detection from queries: a small backbone, one encoder layer and one decoder layer."""

    def __init__(self, queries: int = 50, width: int = 192, classes: int = 20) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 8, 8), nn.ReLU(), nn.Conv2d(64, width, 4, 4))
        self.encode = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, batch_first=True)
        self.decode = nn.TransformerDecoderLayer(width, 6, 4 * width, 0.0, batch_first=True)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.classes, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, 3, 224, 224) to (batch, queries, classes) and (batch, queries, 4)."""
        x = self.encode(self.backbone(images).flatten(2).transpose(1, 2))
        x = self.decode(self.queries.expand(len(images), -1, -1), x)
        return self.classes(x), self.boxes(x).sigmoid()


def matched(classes: Tensor, boxes: Tensor, kinds: Tensor, places: Tensor, on_host: bool) -> Tensor:
    """Return the detection loss with each target's nearest query; `on_host` reads back image by image."""
    with torch.no_grad():
        cost = torch.cdist(boxes.float(), places)
        if on_host:
            found = [image.argmin(0).tolist() for image in cost]
            chosen = torch.tensor(found, device=boxes.device)
        else:
            chosen = cost.argmin(1)
    rows = torch.arange(len(boxes), device=boxes.device)[:, None]
    return F.l1_loss(boxes[rows, chosen].float(), places) + F.cross_entropy(
        classes[rows, chosen].flatten(0, 1), kinds.flatten()
    )


class ConformerBlock(nn.Module):
    """A block of half feed-forward, attention, gated depthwise convolution, and half feed-forward."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        hidden = 4 * width
        self.ends = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width)) for _ in range(2)
        )
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.near, self.batch = nn.Conv1d(width, width, 31, padding=15, groups=width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, frames, width) to the same shape."""
        x = x + 0.5 * self.ends[0](self.norms[0](x))
        q, k, v = self.qkv(self.norms[1](x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        y = F.glu(self.wide(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.narrow(F.silu(self.batch(self.near(y)))).transpose(1, 2)
        return self.norms[4](x + 0.5 * self.ends[1](self.norms[3](x)))


class Conformer(nn.Module):
    """A Conformer that predicts a class for each frame."""

    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(80, width), nn.Linear(width, 128)
        self.blocks = nn.Sequential(*(ConformerBlock(width) for _ in range(layers)))

    def forward(self, frames: Tensor) -> Tensor:
        """Map (batch, frames, 80) to (batch, frames, 128)."""
        return self.head(self.blocks(self.into(frames)))


class Decoder(nn.Module):
    """A greedily generating GPT whose key-value cache grows with every token, or has a fixed size."""

    def __init__(self, width: int = 512, heads: int = 8, layers: int = 2, vocab: int = 8192) -> None:
        super().__init__()
        self.heads, self.tokens, self.head = heads, nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.places = nn.Embedding(2048, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.within = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )

    def forward(self, tokens: Tensor, place: Tensor, cache: list[tuple[Tensor, Tensor]], fixed: bool) -> Tensor:
        """Extend `cache` by `tokens` (batch, n) at `place` (n), and return the next tokens (batch, 1)."""
        x, first = self.tokens(tokens) + self.places(place), not cache
        for i, (qkv, out, within) in enumerate(zip(self.qkv, self.out, self.within, strict=True)):
            q, k, v = qkv(self.norms[2 * i](x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mask = None
            if fixed:
                for old, new in zip(cache[i], (k, v), strict=True):
                    old.index_copy_(2, place, new)
                k, v = cache[i]
                mask = torch.arange(k.shape[2], device=x.device) <= place[:, None]
            elif first:
                cache.append((k, v))
            else:
                k, v = (torch.cat((old, new), 2) for old, new in zip(cache[i], (k, v), strict=True))
                cache[i] = (k, v)
            y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=first and not fixed)
            x = x + out(y.transpose(1, 2).reshape(x.shape))
            x = x + within(self.norms[2 * i + 1](x))
        return self.head(self.norms[-1](x[:, -1:])).argmax(-1)
