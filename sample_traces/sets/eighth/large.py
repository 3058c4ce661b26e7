"""Small models of the eighth set in plain PyTorch: folding, speech, code and table columns."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class LargeResidual(nn.Module):
    """A residual connection around a body."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` to the same shape."""
        return x + self.body(x)


class Triangle(nn.Module):
    """Updates the pair of residues i and j from their pairs with a third residue, as in an Evoformer."""

    def __init__(self, width: int, outgoing: bool) -> None:
        super().__init__()
        self.outgoing, self.norm, self.after = outgoing, nn.LayerNorm(width), nn.LayerNorm(width)
        self.sides, self.gates = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, n, n, width) to the same shape."""
        x = self.norm(z)
        a, b = (self.sides(x) * torch.sigmoid(self.gates(x))).chunk(2, -1)
        joined = torch.einsum("bikc,bjkc->bijc" if self.outgoing else "bkic,bkjc->bijc", a, b)
        return z + torch.sigmoid(self.gate(x)) * self.out(self.after(joined))


class RowAttention(nn.Module):
    """Attention along the rows of the pairs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, n, n, width) to the same shape."""
        b, n, m, width = z.shape
        q, k, v = self.qkv(self.norm(z)).view(b * n, m, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return z + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, m, width))


class Folding(nn.Module):
    """Predicts binned distances of residue pairs by triangle updates and attention."""

    def __init__(self, width: int, layers: int, recompute: bool = False, letters: int = 21, bins: int = 64) -> None:
        super().__init__()
        self.recompute, self.left, self.right = recompute, nn.Embedding(letters, width), nn.Embedding(letters, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(Triangle(width, True), Triangle(width, False), RowAttention(width, 4)),
                LargeResidual(
                    nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
                ),
            )
            for _ in range(layers)
        )
        self.bins = nn.Linear(width, bins)

    def forward(self, chain: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, n, bins)."""
        z = self.left(chain)[:, :, None] + self.right(chain)[:, None]
        for block in self.blocks:
            z = checkpoint(block, z, use_reentrant=False) if self.recompute else block(z)
        return self.bins(z + z.transpose(1, 2))


class Vocoder(nn.Module):
    """HiFi-GAN's generator, which maps a spectrogram to a wave."""

    def __init__(self, width: int = 512, rates: tuple[int, ...] = (8, 8, 4)) -> None:
        super().__init__()
        self.into = nn.Conv1d(80, width, 7, 1, 3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> k, width >> (k + 1), 2 * rate, rate, rate // 2) for k, rate in enumerate(rates)
        )
        self.bodies = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(
                    nn.LeakyReLU(0.1),
                    nn.Conv1d(width >> (k + 1), width >> (k + 1), kernel, 1, apart * (kernel - 1) // 2, apart),
                )
                for kernel in (3, 7)
                for apart in (1, 3, 5)
            )
            for k in range(len(rates))
        )
        self.out = nn.Conv1d(width >> len(rates), 1, 7, 1, 3)

    def forward(self, mel: Tensor) -> Tensor:
        """Map (batch, 80, frames) to (batch, 1, 256 frames)."""
        x = self.into(mel)
        for up, bodies in zip(self.ups, self.bodies, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            for body in bodies:  # type: ignore[attr-defined]  # a ModuleList
                x = x + body(x)
        return torch.tanh(self.out(F.leaky_relu(x)))


class Periods(nn.Module):
    """HiFi-GAN's discriminators, which fold a wave at several periods."""

    def __init__(self, periods: tuple[int, ...] = (2, 3, 5)) -> None:
        super().__init__()
        self.periods = periods
        widths = (1, 32, 128, 512, 512)
        self.judges = nn.ModuleList(
            nn.ModuleList(
                [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in itertools.pairwise(widths)]
                + [nn.Conv2d(512, 1, (3, 1), 1, (1, 0))]
            )
            for _ in periods
        )

    def forward(self, wave: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Map (batch, 1, n) to the verdicts and the features of the layers."""
        verdicts, seen = [], []
        for period, judge in zip(self.periods, self.judges, strict=True):
            x = F.pad(wave, (0, -wave.shape[-1] % period)).unflatten(-1, (-1, period))
            layers = list(judge.children())
            for layer in layers[:-1]:
                x = F.leaky_relu(layer(x), 0.1)
                seen.append(x)
            verdicts.append(layers[-1](x))
        return verdicts, seen


class ParallelBlock(nn.Module):
    """Multi-query attention parallel to the perceptron, after one norm, as in code models."""

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


class Crosses(nn.Module):
    """DCN-v2: cross layers over the columns, and a perceptron in parallel.

    The input is padded to a width if one is requested.
    """

    def __init__(self, columns: int, things: int, width: int, layers: int = 4, filled: int = 0) -> None:
        super().__init__()
        self.vectors, wide = nn.ModuleList(nn.Embedding(things, width) for _ in range(columns)), columns * width + 1
        self.fill = max(0, filled - wide)
        wide += self.fill
        self.crosses = nn.ModuleList(nn.Linear(wide, wide) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(wide, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
        self.out = nn.Linear(wide + 512, 1)

    def forward(self, rows: Tensor, age: Tensor) -> Tensor:
        """Map (batch, columns) and (batch, 1) to (batch)."""
        first = torch.cat([vector(rows[:, k]) for k, vector in enumerate(self.vectors)] + [age], 1)
        first = x = F.pad(first, (0, self.fill)).to(torch.bfloat16)
        for cross in self.crosses:
            x = first * cross(x) + x
        return self.out(torch.cat((x, self.deep(first)), 1))[:, 0]
