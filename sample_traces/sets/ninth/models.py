"""Text and speech models of the ninth set, in plain PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def gelu_new(x: Tensor) -> Tensor:
    """Return GELU by its approximation, with separate operators as in many published models."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Albert(nn.Module):
    """One layer that is applied repeatedly, and word embeddings of few dimensions."""

    def __init__(self, fused: bool, words: int, width: int, times: int, length: int, narrow: int = 128) -> None:
        super().__init__()
        self.fused, self.times, self.heads = fused, times, width // 64
        self.words, self.where = nn.Embedding(words, narrow), nn.Embedding(length, narrow)
        self.into, self.qkv, self.proj = nn.Linear(narrow, width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.slim = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2, self.back = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, narrow)

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, narrow), which is compared with the word embeddings."""
        b, n = words.shape
        x = self.into(self.words(words) + self.where.weight[:n])
        for _ in range(self.times):
            q, k, v = self.qkv(x).view(b, n, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
            x = self.norm_1(x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, -1)))
            h = self.wide(x)
            x = self.norm_2(x + self.slim(F.gelu(h, approximate="tanh") if self.fused else gelu_new(h)))
        return self.back(x)


class Electra(nn.Module):
    """A small model that replaces words, and a large model that detects the replaced words."""

    def __init__(self, words: int, width: int, layers: int, recompute: bool, length: int = 512) -> None:
        super().__init__()
        small = width // 3
        self.recompute = recompute
        self.words, self.where = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.narrow, self.guess = nn.Linear(width, small), nn.Linear(small, words)
        self.small = nn.ModuleList(_encoder_layer(small, small // 64) for _ in range(2))
        self.layers = nn.ModuleList(_encoder_layer(width, width // 64) for _ in range(layers))
        self.verdict = nn.Linear(width, 1)

    def invent(self, words: Tensor, places: Tensor) -> Tensor:
        """Map (batch, n) and (batch, k) to the scores of all words at these places: (batch, k, words)."""
        x = self.narrow(self.words(words) + self.where[: words.shape[1]])
        for layer in self.small:
            x = layer(x)
        return self.guess(x.gather(1, places[..., None].expand(-1, -1, x.shape[-1])))

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n), the score of each word for being replaced."""
        x = self.words(words) + self.where[: words.shape[1]]
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.verdict(x)[..., 0]


def _encoder_layer(width: int, heads: int) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(width, max(heads, 1), 4 * width, 0.1, F.gelu, batch_first=True, norm_first=True)


class Retention(nn.Module):
    """A retentive layer without softmax: earlier tokens decay with distance, at a rate per head."""

    decay: Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.norm, self.after = heads, nn.LayerNorm(width), nn.GroupNorm(heads, width)
        self.qkv, self.gate = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        rate = 1 - 2.0 ** (-5 - torch.arange(heads))
        far = torch.arange(length)[:, None] - torch.arange(length)[None]
        decay = torch.where(far >= 0, rate[:, None, None] ** far.clamp(min=0), torch.zeros(()))
        self.register_buffer("decay", decay / decay.sum(-1, keepdim=True).sqrt(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        y = self.norm(x)
        q, k, v = self.qkv(y).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        kept = (q @ k.transpose(-1, -2)) * self.decay[:, :n, :n].to(q.dtype) / math.sqrt(width // self.heads)
        mixed = self.after((kept @ v).transpose(1, 2).reshape(b * n, width)).view(b, n, width)
        x = x + self.out(mixed * F.silu(self.gate(y)))
        return x + self.mlp(x)


class SpeechConformer(nn.Module):
    """A speech block: half a perceptron, attention, a convolution, half a perceptron."""

    def __init__(self, width: int, heads: int, kernel: int = 31) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.last = (_half_step(width) for _ in range(2))
        self.norm_a, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_c, self.wide = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.deep = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.slim, self.norm = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        x = x + 0.5 * self.first(x)
        q, k, v = self.qkv(self.norm_a(x)).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, width))
        y = F.glu(self.wide(self.norm_c(x).transpose(1, 2)), 1)
        x = x + self.slim(F.silu(self.batch_norm(self.deep(y)))).transpose(1, 2)
        return self.norm(x + 0.5 * self.last(x))


def _half_step(width: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class AudioListener(nn.Module):
    """Speech to letters: a fourfold reduction of the frames, then conformers."""

    def __init__(self, width: int, layers: int, letters: int = 512, bands: int = 80) -> None:
        super().__init__()
        self.fewer = nn.Sequential(nn.Conv1d(bands, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1), nn.SiLU())
        self.blocks = nn.Sequential(*(SpeechConformer(width, width // 64) for _ in range(layers)))
        self.letters = nn.Linear(width, letters)

    def forward(self, sound: Tensor) -> Tensor:
        """Map (batch, bands, frames) to (frames ÷ 4, batch, letters), log-probabilities."""
        return F.log_softmax(self.letters(self.blocks(self.fewer(sound).transpose(1, 2))).float(), -1).transpose(0, 1)
