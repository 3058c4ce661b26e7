"""Models of the seventh set for sequences and graphs, such as words, sessions and molecules."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.sets.seventh.models import Layer


class Tagger(nn.Module):
    """A word tagger with one recurrent layer per direction, word by word or by cuDNN's layer."""

    def __init__(self, words: int, tags: int, width: int, fused: bool) -> None:
        super().__init__()
        self.fused, self.width = fused, width
        self.words, self.dropout = nn.Embedding(words, width), nn.Dropout(0.1)
        if fused:
            self.both = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        else:
            self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))
        self.out = nn.Linear(2 * width, tags)

    def by_cells(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to (batch, n, 2 width)."""
        sides = []
        for cell, way in zip(self.cells, (range(x.shape[1]), reversed(range(x.shape[1]))), strict=True):
            state = x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.width)
            outputs: dict[int, Tensor] = {}
            for t in way:
                state = cell(x[:, t], state)
                outputs[t] = state[0]
            sides.append(torch.stack([outputs[t] for t in range(x.shape[1])], 1))
        return torch.cat(sides, -1)

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, tags)."""
        x = self.dropout(self.words(words))
        return self.out(self.dropout(self.both(x)[0] if self.fused else self.by_cells(x)))


class Demand(nn.Module):
    """DeepAR: predicts the next sales and their spread with two recurrent layers."""

    def __init__(self, goods: int, width: int, fused: bool, features: int = 8) -> None:
        super().__init__()
        self.fused, self.goods = fused, nn.Embedding(goods, 24)
        into = features + 25
        if fused:
            self.layers = nn.GRU(into, width, 2, batch_first=True)
        else:
            self.lower, self.upper = nn.GRUCell(into, width), nn.GRUCell(width, width)
        self.out, self.width = nn.Linear(width, 2), width

    def forward(self, goods: Tensor, sold: Tensor, known: Tensor) -> Tensor:
        """Map (batch), (batch, n) and (batch, n, features) to (batch, n, 2): mean and spread."""
        n = sold.shape[1]
        x = torch.cat((sold[..., None], known, self.goods(goods)[:, None].expand(-1, n, -1)), -1)
        if self.fused:
            return self.out(self.layers(x)[0])
        low = high = x.new_zeros(len(x), self.width)
        said = []
        for t in range(n):
            low = self.lower(x[:, t], low)
            high = self.upper(low, high)
            said.append(self.out(high))
        return torch.stack(said, 1)


class Clicks(nn.Module):
    """DeepFM: predicts clicks from columns of ids."""

    offsets: Tensor

    def __init__(self, columns: int, things: int, width: int = 16) -> None:
        super().__init__()
        self.linear, self.vectors = nn.Embedding(columns * things, 1), nn.Embedding(columns * things, width)
        self.register_buffer("offsets", torch.arange(columns) * things)
        sizes = (columns * width, 400, 400, 400)
        deep = (p for a, b in itertools.pairwise(sizes) for p in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()))
        self.deep = nn.Sequential(*deep, nn.Linear(400, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, columns) to (batch)."""
        rows = x + self.offsets
        v = self.vectors(rows)
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(-1) / 2
        return self.linear(rows).sum((1, 2)) + pairs + self.deep(v.flatten(1))[:, 0]


class ShoppingSessions(nn.Module):
    """SASRec: predicts the next item that a user looks at."""

    def __init__(self, things: int, width: int, length: int, layers: int = 2, fused: bool = True) -> None:
        super().__init__()
        self.things, self.places = nn.Embedding(things, width), nn.Parameter(torch.randn(1, length, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, max(1, width // 64), fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, seen: Tensor) -> Tensor:
        """Map (batch, n) to (batch, n, width)."""
        return self.norm(self.layers(self.things(seen) + self.places[:, : seen.shape[1]]))


class Texts(nn.Module):
    """A TextCNN with windows of three, four and five words."""

    def __init__(self, words: int, width: int = 300, maps: int = 256, classes: int = 20) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.windows = nn.ModuleList(nn.Conv1d(width, maps, n) for n in (3, 4, 5))
        self.out = nn.Sequential(nn.Dropout(0.5), nn.Linear(3 * maps, classes))

    def forward(self, words: Tensor) -> Tensor:
        """Map (batch, n) to (batch, classes)."""
        x = self.words(words).transpose(1, 2)
        return self.out(torch.cat([F.relu(window(x)).amax(-1) for window in self.windows], -1))


class Atoms(nn.Module):
    """A graph attention network over molecules, whose bonds are a mask."""

    def __init__(self, kinds: int = 32, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.kinds, self.heads = nn.Embedding(kinds, width), heads
        self.turns = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.sides = nn.ParameterList(torch.randn(2, heads, width // heads) * 0.1 for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, atoms: Tensor, bonds: Tensor) -> Tensor:
        """Map (batch, n) and (batch, n, n) to one figure per molecule (batch)."""
        x = self.kinds(atoms)
        for turn, side, norm in zip(self.turns, self.sides, self.norms, strict=True):
            h = turn(x).unflatten(-1, (self.heads, -1))
            source, target = (h * side[0]).sum(-1), (h * side[1]).sum(-1)
            weights = (
                F.leaky_relu(target[:, :, None] + source[:, None], 0.2).masked_fill(~bonds[..., None], float("-inf")).softmax(2)
            )
            x = norm(x + F.elu(torch.einsum("bijh,bjhc->bihc", weights, h).flatten(2)))
        return self.out(x.mean(1))[:, 0]


class Paths(nn.Module):
    """A network that predicts a person's next position from the previous ones."""

    def __init__(self, width: int = 192, layers: int = 4) -> None:
        super().__init__()
        self.into = nn.Linear(6, width)
        self.layers = nn.Sequential(*(Layer(width, 3) for _ in range(layers)))
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, 6) to (batch, n, 2)."""
        return self.out(self.layers(self.into(x)))


class Trend(nn.Module):
    """N-BEATS: blocks that each explain a part of a series and pass the rest on."""

    def __init__(self, past: int, ahead: int, width: int = 512, blocks: int = 12) -> None:
        super().__init__()
        self.past, self.ahead = past, ahead
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
                *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, past + ahead)),
            )
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, past) to (batch, ahead)."""
        ahead = x.new_zeros(len(x), self.ahead)
        for block in self.blocks:
            behind, part = block(x).split((self.past, self.ahead), -1)
            x, ahead = x - behind, ahead + part
        return ahead
