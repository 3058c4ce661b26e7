"""Small models of the sixth set in plain PyTorch, such as a diffusion transformer and a DenseNet."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head attention with PyTorch's fused function."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(b, n, width))


def feed_forward(width: int) -> nn.Sequential:
    """Return a feed-forward network with a hidden width of four times `width`."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))


class Conditioned(nn.Module):
    """A block of a diffusion transformer.

    The condition determines shifts, scales and gates (adaLN-zero).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.forward_part = Attention(width, heads), feed_forward(width)
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map (batch, n, width) and (batch, width) to (batch, n, width)."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.condition(condition)[:, None].chunk(6, -1)
        x = x + gate * self.attention(F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift)
        return x + gate_2 * self.forward_part(F.layer_norm(x, x.shape[-1:]) * (1 + scale_2) + shift_2)


class DiffusionTransformer(nn.Module):
    """Predicts the noise from patches of latent images, a time and a class."""

    def __init__(self, side: int, patch: int, width: int, layers: int, heads: int, classes: int = 1000) -> None:
        super().__init__()
        self.patch, self.width = patch, width
        self.into = nn.Conv2d(4, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.kinds = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(Conditioned(width, heads) for _ in range(layers))
        self.out = nn.Linear(width, patch * patch * 4)

    def forward(self, x: Tensor, time: Tensor, kinds: Tensor) -> Tensor:
        """Map (batch, 4, side, side), (batch) and (batch) to (batch, 4, side, side)."""
        b, c, side, _ = x.shape
        waves = torch.exp(torch.arange(128, device=x.device) * (-math.log(10_000.0) / 128))
        angles = time[:, None] * waves[None]
        condition = self.time(torch.cat((angles.cos(), angles.sin()), -1)) + self.kinds(kinds)
        tokens = self.into(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            tokens = block(tokens, condition)
        n = side // self.patch
        out = self.out(F.layer_norm(tokens, tokens.shape[-1:])).view(b, n, n, self.patch, self.patch, c)
        return out.permute(0, 5, 1, 3, 2, 4).reshape(b, c, side, side)


class Dense(nn.Module):
    """A DenseNet layer, which concatenates its input and its output."""

    def __init__(self, a: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.BatchNorm2d(a), nn.ReLU(), nn.Conv2d(a, 4 * growth, 1, bias=False)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, a, h, w) to (batch, a + growth, h, w)."""
        return torch.cat((x, self.body(x)), 1)


def dense_net(depths: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32, classes: int = 1000) -> nn.Sequential:
    """Return a DenseNet, which is DenseNet-121 with the default `depths`."""
    width = 2 * growth
    parts: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for index, depth in enumerate(depths):
        for _ in range(depth):
            parts.append(Dense(width, growth))
            width += growth
        if index + 1 < len(depths):
            parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*parts, nn.BatchNorm2d(width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class Coupling(nn.Module):
    """A coupling layer of RealNVP: one half of the columns scales and shifts the other half."""

    def __init__(self, columns: int, width: int, flip: bool) -> None:
        super().__init__()
        self.flip = flip
        half = columns // 2
        self.net = nn.Sequential(
            nn.Linear(half, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * half)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same shape as `x` (batch, columns), and the log of the volume change (batch)."""
        a, b = x.chunk(2, 1)
        a, b = (b, a) if self.flip else (a, b)
        scale, shift = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        b = b * scale.exp() + shift
        return torch.cat((b, a) if self.flip else (a, b), 1), scale.sum(1)


class Autoencoder(nn.Module):
    """A convolutional variational autoencoder of images."""

    def __init__(self, width: int = 64, hidden: int = 256) -> None:
        super().__init__()
        sizes = [(3, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 4 * width)]
        self.encode = nn.Sequential(*(p for a, b in sizes for p in (nn.Conv2d(a, b, 4, 2, 1), nn.GroupNorm(8, b), nn.SiLU())))
        self.moments, self.back = nn.Conv2d(4 * width, 2 * hidden, 1), nn.Conv2d(hidden, 4 * width, 1)
        ups = [(4 * width, 4 * width), (4 * width, 2 * width), (2 * width, width), (width, width)]
        self.decode = nn.Sequential(
            *(p for a, b in ups for p in (nn.ConvTranspose2d(a, b, 4, 2, 1), nn.GroupNorm(8, b), nn.SiLU())),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map (batch, 3, h, w) to its reconstruction, the means and the logarithms of variances."""
        mean, log_var = self.moments(self.encode(x)).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(self.back(z)), mean, log_var


class LinearAttention(nn.Module):
    """Attention without a softmax, by chunks; one matrix per head stores the previous chunks."""

    def __init__(self, width: int, heads: int, chunk: int = 128) -> None:
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.qkv, self.gate, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, width)
        self.mask: Tensor
        self.register_buffer("mask", torch.tril(torch.ones(chunk, chunk)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        shape = (b, n // self.chunk, self.chunk, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(3, 0, 4, 1, 2, 5)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        states = torch.einsum("bhcnd,bhcne->bhcde", k, v).cumsum(2)
        before = F.pad(states[:, :, :-1], (0, 0, 0, 0, 1, 0))
        near = (torch.einsum("bhcnd,bhcmd->bhcnm", q, k) * self.mask) @ v
        y = near + q @ before.to(q.dtype)
        y = y * torch.rsqrt(y.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(y.dtype)
        return self.out(y.permute(0, 2, 3, 1, 4).reshape(b, n, width) * F.silu(self.gate(x)))


class LinearDecoder(nn.Module):
    """A language model with linear attention."""

    def __init__(self, vocab: int, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.mixers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), LinearAttention(width, width // 64)) for _ in range(layers)
        )
        self.wides = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), feed_forward(width)) for _ in range(layers))

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to the loss of the next words."""
        x = self.words(words)
        for mixer, wide in zip(self.mixers, self.wides, strict=True):
            x = x + mixer(x)
            x = x + wide(x)
        return F.cross_entropy(self.head(x)[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())
