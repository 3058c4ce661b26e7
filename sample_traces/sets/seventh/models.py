"""Small models of the seventh set in plain PyTorch: pictures, video, poses and operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    """A pre-norm transformer layer with fused or unfused attention."""

    def __init__(self, width: int, heads: int, fused: bool = True) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Map (batch, n, width) to the same shape; `mask` (batch, n) is False for padding."""
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        where = None if mask is None else mask[:, None, None]
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, where)
        else:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            scores = scores if where is None else scores.masked_fill(~where, float("-inf"))
            mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, n, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        x = x + self.attend(self.norm_1(x), mask)
        return x + self.body(self.norm_2(x))


class MaskedPictures(nn.Module):
    """A masked autoencoder, which sees a quarter of a picture's patches and predicts the others."""

    def __init__(self, width: int, layers: int, side: int = 224, patch: int = 16, recompute: bool = False) -> None:
        super().__init__()
        self.patch, self.places, self.recompute = patch, (side // patch) ** 2, recompute
        self.kept = self.places // 4
        self.into, self.between = nn.Linear(3 * patch**2, width), nn.Linear(width, width // 2)
        self.where = nn.Parameter(torch.randn(1, self.places, width) * 0.02)
        self.unseen = nn.Parameter(torch.zeros(1, 1, width // 2))
        self.encoder = nn.ModuleList(Layer(width, width // 64) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width // 2, width // 64) for _ in range(layers // 4 + 1))
        self.out = nn.Linear(width // 2, 3 * patch**2)

    def through(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        """Return `x` after all layers, whose activations are stored or recomputed."""
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return x

    def forward(self, pictures: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to the error of the unseen patches."""
        b, p = len(pictures), self.patch
        patches = F.unfold(pictures, p, stride=p).transpose(1, 2)
        order = torch.rand(b, self.places, device=pictures.device).argsort(1)
        back = order.argsort(1)
        seen = order[:, : self.kept, None]
        x = self.into(patches) + self.where
        x = self.between(self.through(self.encoder, x.gather(1, seen.expand(-1, -1, x.shape[-1]))))
        x = torch.cat((x, self.unseen.to(x.dtype).expand(b, self.places - self.kept, -1)), 1)
        x = self.through(self.decoder, x.gather(1, back[..., None].expand(-1, -1, x.shape[-1])))
        error = (self.out(x).float() - patches).square().mean(-1)
        unseen = (back >= self.kept).float()
        return (error * unseen).sum() / unseen.sum()


class Divided(nn.Module):
    """Attention over time, then over space, as in a TimeSformer."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.time, self.space = Layer(width, heads, fused), Layer(width, heads, fused)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, frames, places, width) to the same shape."""
        b, t, n, width = x.shape
        x = self.time(x.transpose(1, 2).reshape(b * n, t, width)).view(b, n, t, width).transpose(1, 2)
        return self.space(x.reshape(b * t, n, width)).view(b, t, n, width)


class Actions(nn.Module):
    """A network that recognizes the action in a clip."""

    def __init__(self, width: int, layers: int, fused: bool, frames: int = 8, side: int = 224, classes: int = 400) -> None:
        super().__init__()
        self.into = nn.Conv3d(3, width, (1, 16, 16), (1, 16, 16))
        self.where = nn.Parameter(torch.randn(1, frames, (side // 16) ** 2, width) * 0.02)
        self.layers = nn.Sequential(*(Divided(width, width // 64, fused) for _ in range(layers)))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, clips: Tensor) -> Tensor:
        """Map (batch, 3, frames, side, side) to (batch, classes)."""
        x = self.into(clips).flatten(3).permute(0, 2, 3, 1) + self.where
        return self.out(self.layers(x).mean((1, 2)))


def conv(a: int, b: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | tuple[int, int] = 0) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class Branches(nn.Module):
    """An Inception block of four parallel branches, which are concatenated."""

    def __init__(self, a: int, width: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            [
                conv(a, width, 1),
                nn.Sequential(conv(a, width // 2, 1), conv(width // 2, width, 5, 1, 2)),
                nn.Sequential(conv(a, width, 1), conv(width, width, (1, 7), 1, (0, 3)), conv(width, width, (7, 1), 1, (3, 0))),
                nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(a, width, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, a, h, w) to (batch, 4 width, h, w)."""
        return torch.cat([way(x) for way in self.ways], 1)


def inception(classes: int = 1000) -> nn.Sequential:
    """Return a small Inception."""
    parts: list[nn.Module] = [conv(3, 32, 3, 2), conv(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2), conv(64, 192, 3, 1, 1)]
    width = 192
    for index, wide in enumerate((64, 64, 128, 128, 128, 192, 192)):
        parts.append(Branches(width, wide))
        width = 4 * wide
        if index in {1, 4}:
            parts.append(nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, classes))


class Hourglass(nn.Module):
    """A network that scales down and up again, with skip connections."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.side, self.down, self.up = (conv(width, width, 3, 1, 1) for _ in range(3))
        self.inner = Hourglass(width, depth - 1) if depth > 1 else conv(width, width, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width, h, w) to the same shape."""
        low = self.up(self.inner(self.down(F.max_pool2d(x, 2))))
        return self.side(x) + F.interpolate(low, scale_factor=2)


class Poses(nn.Module):
    """Two hourglasses that predict the positions of 17 joints; both get a loss."""

    def __init__(self, width: int = 128, joints: int = 17) -> None:
        super().__init__()
        self.into = nn.Sequential(conv(3, width // 2, 7, 2, 3), nn.MaxPool2d(2), conv(width // 2, width, 3, 1, 1))
        self.glasses = nn.ModuleList(Hourglass(width, 4) for _ in range(2))
        self.heads = nn.ModuleList(nn.Conv2d(width, joints, 1) for _ in range(2))
        self.again = nn.Conv2d(joints, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, 3, 256, 256) to two (batch, joints, 64, 64)."""
        x = self.into(x)
        seen = self.glasses[0](x)
        first = self.heads[0](seen)
        return first, self.heads[1](self.glasses[1](x + seen + self.again(first)))


class Factored(nn.Module):
    """A residual block of a video network: convolution over space, then over time."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv3d(a, b, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(b), nn.ReLU(inplace=True)),
            *(nn.Conv3d(b, b, (3, 1, 1), 1, (1, 0, 0), bias=False), nn.BatchNorm3d(b)),
        )
        self.beside = nn.Conv3d(a, b, 1, (1, stride, stride), bias=False) if a != b or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, a, frames, h, w) to (batch, b, frames, h ÷ stride, w ÷ stride)."""
        return F.relu(self.body(x) + self.beside(x))


def factored_video(widths: tuple[int, ...] = (64, 128, 256, 512), classes: int = 400) -> nn.Sequential:
    """Return an R(2+1)D network."""
    parts: list[nn.Module] = [nn.Conv3d(3, widths[0], (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.ReLU(inplace=True)]
    for a, b in zip((widths[0], *widths), widths, strict=False):
        parts += [Factored(a, b, 1 if a == b else 2), Factored(b, b, 1)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


class Codes(nn.Module):
    """A VQ-VAE, which maps a picture to words of a code book and back."""

    def __init__(self, width: int = 256, words: int = 1024) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            conv(3, width // 2, 4, 2, 1), conv(width // 2, width, 4, 2, 1), conv(width, width, 3, 1, 1)
        )
        self.book = nn.Embedding(words, width)
        up = nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1)
        self.decoder = nn.Sequential(conv(width, width, 3, 1, 1), *up)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map (batch, 3, side, side) to the reconstruction, the encoder's output and the chosen words.

        The last two are (batch, h, w, width).
        """
        meant = self.encoder(x).permute(0, 2, 3, 1)
        flat, words = meant.flatten(0, 2), self.book.weight.to(meant.dtype)
        nearest = (words.square().sum(1) - 2 * flat @ words.t()).argmin(1)
        chosen = F.embedding(nearest, self.book.weight).view(meant.shape)
        straight = meant + (chosen - meant).detach()
        return self.decoder(straight.permute(0, 3, 1, 2).to(x.dtype)), meant, chosen


class Operator(nn.Module):
    """A DeepONet, which predicts a field at some places from its values at other places."""

    def __init__(self, sensors: int, width: int, depth: int) -> None:
        super().__init__()
        self.branch, self.trunk = (
            nn.Sequential(*(p for k in range(depth) for p in (nn.Linear(width if k else a, width), nn.SiLU())))
            for a in (sensors, 3)
        )
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, field: Tensor, places: Tensor) -> Tensor:
        """Map (batch, sensors) and (places, 3) to (batch, places)."""
        return self.branch(field) @ self.trunk(places).t() + self.shift
