"""Small models of the eighth set in plain PyTorch: folding, speech, code and table columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class ParallelBlock(nn.Module):
    """Multi-query attention parallel to the MLP, after one norm, as in code models."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.norm, self.both = nn.LayerNorm(width), nn.Linear(width, width + 2 * self.head + 4 * width, bias=False)
        self.out = nn.Linear(5 * width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        q, k, v, h = self.both(self.norm(x)).split((width, self.head, self.head, 4 * width), -1)
        q, k = q.view(b, n, self.heads, self.head).transpose(1, 2), k.view(b, 1, n, self.head)
        q, k = (y * cos + torch.cat((-y[..., self.head // 2 :], y[..., : self.head // 2]), -1) * sin for y in (q, k))
        k, v = k.expand(-1, self.heads, -1, -1), v.view(b, 1, n, self.head).expand(-1, self.heads, -1, -1)
        mixed = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        return x + self.out(torch.cat((mixed.transpose(1, 2).reshape(b, n, width), F.gelu(h)), -1))


class Coder(nn.Module):
    """A model that predicts the next token of a program."""

    cos: Tensor
    sin: Tensor

    def __init__(self, words: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        heads = width // 64
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(ParallelBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        turn = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, 64, 2) / 64)
        self.register_buffer("cos", torch.cat((turn, turn), -1).cos())
        self.register_buffer("sin", torch.cat((turn, turn), -1).sin())

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, words)."""
        x, n = self.words(words), words.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:n], self.sin[:n])
        return self.head(self.norm(x))
