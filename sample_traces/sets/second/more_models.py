"""More models of the second set: recommendation, sound, sequences, graphs, experts, images."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class Dlrm(nn.Module):
    """Embedding tables and dense features, combined by pairwise products."""

    def __init__(self, tables: int = 26, rows: int = 200_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Return (batch,) logits; `dense` is (batch, 13), `sparse` is (tables, batch) int64."""
        first = self.bottom(dense)
        vectors = torch.stack([first, *(table(ids[:, None]) for table, ids in zip(self.tables, sparse, strict=True))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2).to(vectors.dtype))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((first, products.to(first.dtype)), 1)).squeeze(1)


class WaveNet(nn.Module):
    """Gated dilated convolutions over sound, with skip connections."""

    def __init__(self, width: int = 128, layers: int = 8, levels: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(levels, width)
        self.dilated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i, padding=2**i) for i in range(layers))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, levels, 1))

    def forward(self, sound: Tensor) -> Tensor:
        """Return the loss of the next sample; `sound` is (batch, samples) int64."""
        x = self.embed(sound).transpose(1, 2)
        total = torch.zeros_like(x)
        for dilated, skip in zip(self.dilated, self.skips, strict=True):
            left, right = dilated(x)[..., : x.shape[-1]].chunk(2, 1)
            y = skip(torch.tanh(left) * torch.sigmoid(right))
            total, x = total + y, x + y
        return F.cross_entropy(self.head(total)[..., :-1], sound[:, 1:])


class Experts(nn.Module):
    """Top-1 routed experts, as a Python loop or as one batched product with a capacity."""

    def __init__(self, width: int, experts: int, batched: bool) -> None:
        super().__init__()
        self.gate, self.batched = nn.Linear(width, experts), batched
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Map (tokens, width) to the same shape."""
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        if self.batched:  # The gate decides only the weight. Tokens are distributed evenly, so that the shapes are fixed.
            dealt = x.view(len(self.up), -1, x.shape[1])
            y = torch.bmm(F.gelu(torch.bmm(dealt, self.up.to(x.dtype))), self.down.to(x.dtype)).view_as(x)
            return x + y * weight[:, None].to(y.dtype)
        out = x.clone()
        for index in range(len(self.up)):
            rows = (chosen == index).nonzero().squeeze(1)
            y = F.gelu(x[rows] @ self.up[index].to(x.dtype)) @ self.down[index].to(x.dtype)
            out = out.index_add(0, rows, (y * weight[rows, None]).to(out.dtype))
        return out


class MaskedLanguage(nn.Module):
    """BERT: encoder layers and a head over the complete vocabulary."""

    def __init__(self, vocab: int, width: int = 768, layers: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, 0.1, F.gelu, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the loss; both inputs are (batch, seq) int64."""
        return F.cross_entropy(self.head(self.blocks(self.tokens(tokens))).flatten(0, 1), targets.flatten())


def volumes() -> nn.Module:
    """Return an autoencoder of 3-D convolutions."""
    down = (nn.Conv3d(1, 32, 3, 2, 1), nn.BatchNorm3d(32), nn.ReLU(), nn.Conv3d(32, 64, 3, 2, 1), nn.BatchNorm3d(64), nn.ReLU())
    return nn.Sequential(*down, nn.ConvTranspose3d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose3d(32, 1, 4, 2, 1))
