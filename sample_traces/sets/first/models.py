"""Models of the sample recordings: a GPT, a bottleneck ResNet and a small MLP.

They are plain PyTorch, so that every operator of a recording can be found in this code.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class GptShape:
    """Sizes and options of a GPT; `work_s` is pure-Python time per block, in seconds."""

    layers: int = 4
    width: int = 512
    heads: int = 8
    vocab: int = 16384
    seq: int = 512
    attention: str = "sdpa"  # Or "math": two matrix products with a softmax between them.
    norm: str = "fused"  # Or "by_hand": LayerNorm and GELU as separate elementwise operators.
    mask_on: str = "gpu"  # Or "cpu": every block builds its mask on the CPU and copies it (math attention only).
    work_s: float = 0.0


class HandLayerNorm(nn.Module):
    """Layer normalization with separate operators for mean, variance, scale and shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * self.weight + self.bias


def hand_gelu(x: Tensor) -> Tensor:
    """Return GELU in its tanh form, computed with one elementwise operator at a time."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def python_work(seconds: float) -> int:
    """Keep the interpreter busy for `seconds` without an operator, and return the number of rounds."""
    rounds, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        rounds += len({str(i): i * i for i in range(20)})
    return rounds


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        norm = nn.LayerNorm if shape.norm == "fused" else HandLayerNorm
        width = shape.width
        self.shape = shape
        self.norm_1, self.norm_2 = norm(width), norm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return causal self-attention over (batch, seq, width)."""
        batch, seq, width = x.shape
        heads = self.shape.heads
        q, k, v = self.qkv(x).view(batch, seq, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        if self.shape.mask_on == "cpu":
            bias = causal_bias(seq).to(x.device)
        if bias is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (width // heads) ** -0.5 + bias
            y = torch.softmax(scores, dim=-1).to(v.dtype) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, seq, width))

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Map (batch, seq, width) to the same shape."""
        if self.shape.work_s:
            python_work(self.shape.work_s)
        x = x + self.attend(self.norm_1(x), bias)
        hidden = self.up(self.norm_2(x))
        return x + self.down(F.gelu(hidden, approximate="tanh") if self.shape.norm == "fused" else hand_gelu(hidden))


class Gpt(nn.Module):
    """A GPT with tied embeddings; forward returns the mean cross-entropy of the next token."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = False
        self.stored_logits: list[Tensor] | None = None  # Logits of all steps; None: not stored.
        self.tokens, self.positions = nn.Embedding(shape.vocab, shape.width), nn.Embedding(shape.seq, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.tokens.weight
        self.causal: Tensor
        self.register_buffer("causal", causal_bias(shape.seq), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the scalar loss; `tokens` and `targets` are (batch, seq) int64."""
        seq = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[:seq]
        bias = self.causal[:seq, :seq] if self.shape.attention == "math" else None
        for block in self.blocks:
            x = checkpoint(block, x, bias, use_reentrant=False) if self.recompute else block(x, bias)
        logits = self.head(self.norm(x))
        if self.stored_logits is not None:
            self.stored_logits.append(logits.detach())
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def causal_bias(seq: int) -> Tensor:
    """Return (seq, seq): 0 for tokens that a token may attend to, else -inf."""
    return torch.triu(torch.full((seq, seq), float("-inf")), diagonal=1)


class Bottleneck(nn.Module):
    """The ResNet-50 block: 1x1, 3x3 and 1x1 convolutions with batch normalization, and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv_1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.conv_2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv_3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm_1, self.norm_2, self.norm_3 = nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) to (batch, 4 * width, h / stride, w / stride)."""
        y = F.relu(self.norm_1(self.conv_1(x)), inplace=True)
        y = F.relu(self.norm_2(self.conv_2(y)), inplace=True)
        return F.relu(self.norm_3(self.conv_3(y)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A bottleneck ResNet for 224 x 224 images and 1000 classes; `depths` (3, 4, 6, 3) is ResNet-50."""

    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for stage, depth in enumerate(depths):
            for index in range(depth):
                blocks.append(Bottleneck(inputs, 64 << stage, 2 if stage and index == 0 else 1))
                inputs = 4 * (64 << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, 224, 224) to (batch, 1000) logits."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(images)), inplace=True), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def mlp(layers: int, inputs: int, hidden: int, classes: int = 16, norm: bool = True) -> nn.Sequential:
    """Return `layers` linear layers of width `hidden`, each followed by GELU, and a linear classifier.

    If `norm` is set, layer normalization follows each GELU.
    """
    modules: list[nn.Module] = []
    for index in range(layers):
        modules += [nn.Linear(inputs if index == 0 else hidden, hidden), nn.GELU()]
        if norm:
            modules.append(nn.LayerNorm(hidden))
    return nn.Sequential(*modules, nn.Linear(hidden, classes))
