"""Small models of the second set in plain PyTorch; nothing in the analysis is fitted to them.

They are for language, vision, speech, graphs, recommendation and control.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class HandRmsNorm(nn.Module):
    """Root-mean-square normalization, with separate operators or with PyTorch's function."""

    def __init__(self, width: int, by_hand: bool) -> None:
        super().__init__()
        self.weight, self.by_hand = nn.Parameter(torch.ones(width)), by_hand

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        if not self.by_hand:
            return F.rms_norm(x, [x.shape[-1]], self.weight.to(x.dtype))
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight.to(x.dtype)


class LlamaBlock(nn.Module):
    """Rotary attention with grouped keys, and a gated feed-forward network."""

    def __init__(self, width: int, heads: int, groups: int, norm_by_hand: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norm_1, self.norm_2 = HandRmsNorm(width, norm_by_hand), HandRmsNorm(width, norm_by_hand)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.head, bias=False)
        hidden = 64 * round(width * 8 / 3 / 64)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the rotary position embedding of (batch, heads, seq, head)."""
        left, right = x.chunk(2, -1)
        return torch.cat((left * cos - right * sin, left * sin + right * cos), -1)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map (batch, seq, width) to the same shape."""
        batch, seq, width = x.shape
        y = self.norm_1(x)
        q = self.q(y).view(batch, seq, self.heads, self.head).transpose(1, 2)
        k, v = self.kv(y).view(batch, seq, 2, self.groups, self.head).permute(2, 0, 3, 1, 4)
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (self.rotate(k, cos, sin), v))
        y = F.scaled_dot_product_attention(self.rotate(q, cos, sin), k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, seq, width))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Next-token loss of a small Llama."""

    def __init__(
        self,
        width: int = 1024,
        layers: int = 3,
        heads: int = 16,
        groups: int = 4,
        vocab: int = 32000,
        norm_by_hand: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, norm_by_hand) for _ in range(layers))
        self.norm, self.head = HandRmsNorm(width, norm_by_hand), nn.Linear(width, vocab, bias=False)
        self.rotated = width // heads // 2

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy; `tokens` is (batch, seq) int64."""
        x = self.tokens(tokens[:, :-1])
        place = torch.arange(x.shape[1], device=x.device)[:, None]
        angle = place / 10000 ** (torch.arange(self.rotated, device=x.device) / self.rotated)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())


class BiasedAttention(nn.Module):
    """Attention with a learned bias per head and distance, as in T5.

    `fused` says whether the fused kernel adds the bias.
    """

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        """Return the attention of `x` (batch, seq, width) to `memory`."""
        q, k, v = (
            linear(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        bias = bias.to(q.dtype) if bias is not None else None
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            y = torch.softmax(scores if bias is None else scores + bias, -1).to(v.dtype) @ v
        return self.o(y.transpose(1, 2).flatten(2))


class T5(nn.Module):
    """Encoder and decoder of `layers` layers each; returns the loss of the target's next token."""

    def __init__(
        self, width: int = 512, layers: int = 2, heads: int = 8, vocab: int = 16000, seq: int = 512, fused: bool = True
    ):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(heads, seq, seq))
        self.own = nn.ModuleList(BiasedAttention(width, heads, fused) for _ in range(2 * layers))
        self.cross = nn.ModuleList(BiasedAttention(width, heads, fused) for _ in range(layers))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
            for _ in range(2 * layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.layers, self.seq = layers, seq
        self.mask: Tensor
        self.register_buffer("mask", torch.full((seq, seq), -1e4).triu(1), persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the loss; `source` and `target` are (batch, seq) int64."""
        x, bias = self.tokens(source), self.bias.unsqueeze(0)
        for i in range(self.layers):
            y = self.norms[i](x)
            x = x + self.own[i](y, y, bias)
            x = x + self.wide[i](x)
        memory, x = x, self.tokens(target)
        for i in range(self.layers, 2 * self.layers):
            y = self.norms[i](x)
            x = x + self.own[i](y, y, bias + self.mask)
            x = x + self.cross[i - self.layers](x, memory, None)
            x = x + self.wide[i](x)
        return F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), target[:, 1:].flatten())


class ViT(nn.Module):
    """A vision transformer: patches, nn.TransformerEncoder layers, a mean and a classifier."""

    def __init__(self, width: int = 768, layers: int = 4, heads: int = 12, patch: int = 16, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.zeros(1, (224 // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, 224, 224) to logits."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(x).mean(1))


class ConvNextBlock(nn.Module):
    """A 7 × 7 depthwise convolution, layer norm, and two pointwise layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width, h, w) to the same shape."""
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + self.down(F.gelu(self.up(self.norm(y)))).permute(0, 3, 1, 2)


def convnext(widths: tuple[int, ...] = (96, 192, 384), depth: int = 2) -> nn.Module:
    """Return stages of ConvNeXt blocks between strided convolutions."""
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4)]
    for index, width in enumerate(widths):
        if index:
            parts.append(nn.Conv2d(widths[index - 1], width, 2, 2))
        parts += [ConvNextBlock(width) for _ in range(depth)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000))


class MbConv(nn.Module):
    """EfficientNet's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, kernel: int = 5) -> None:
        super().__init__()
        wide = 6 * inputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        depthwise = nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(wide), nn.SiLU())
        self.excite = nn.Sequential(nn.Conv2d(wide, inputs // 4, 1), nn.SiLU(), nn.Conv2d(inputs // 4, wide, 1), nn.Sigmoid())
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, outputs, h / stride, w / stride)."""
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.excite(y.mean((2, 3), keepdim=True)))
        return x + y if self.same else y


def efficientnet() -> nn.Module:
    """Return five MBConv blocks behind a strided stem."""
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU())
    sizes = ((32, 24, 2), (24, 24, 1), (24, 40, 2), (40, 80, 2), (80, 80, 1))
    blocks = [MbConv(*size) for size in sizes]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 1000))


def vgg(widths: tuple[int, ...] = (64, 128, 256, 512)) -> nn.Module:
    """Return pairs of 3 × 3 convolutions with batch norm, with pooling between the pairs."""
    parts: list[nn.Module] = []
    inputs = 3
    for width in widths:
        for _ in range(2):
            parts += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
        parts.append(nn.MaxPool2d(2))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Mixer(nn.Module):
    """MLP-Mixer: alternating layers over patches and over channels."""

    def __init__(self, width: int = 512, layers: int = 6, patches: int = 196) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, width, 16, 16), nn.Linear(width, 1000)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.across = nn.ModuleList(
            nn.Sequential(nn.Linear(patches, 256), nn.GELU(), nn.Linear(256, patches)) for _ in range(layers)
        )
        self.within = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, 224, 224) to logits."""
        x = self.stem(images).flatten(2).transpose(1, 2)
        for i, (across, within) in enumerate(zip(self.across, self.within, strict=True)):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + within(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


class UNet(nn.Module):
    """Three levels with group norm, skip connections, and a class per pixel."""

    def __init__(self, inputs: int = 3, outputs: int = 8, width: int = 64) -> None:
        super().__init__()
        sizes = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(self.level(a, b) for a, b in zip((inputs, *sizes), sizes, strict=False))
        self.up = nn.ModuleList(self.level(b + a, a) for a, b in ((sizes[1], sizes[2]), (sizes[0], sizes[1])))
        self.last = nn.Conv2d(width, outputs, 1)

    @staticmethod
    def level(inputs: int, outputs: int) -> nn.Module:
        """Return two 3 × 3 convolutions with group norm and SiLU."""
        first = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(16, outputs), nn.SiLU())
        return nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(16, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, outputs, h, w)."""
        skips = []
        for index, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if index else x)
            skips.append(x)
        for level, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            x = level(torch.cat((F.interpolate(x, scale_factor=2.0), skip), 1))
        return self.last(x)
