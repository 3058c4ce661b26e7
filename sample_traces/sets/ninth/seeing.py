"""Vision models of the ninth set, in plain PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn


class Radiance(nn.Module):
    """A radiance field, which maps a position and a viewing direction to a colour and a density."""

    def __init__(self, width: int, layers: int, waves: int = 10) -> None:
        super().__init__()
        self.waves, wide = waves, 3 + 6 * waves
        self.first = nn.Linear(wide, width)
        self.layers = nn.ModuleList(nn.Linear(width + (wide if k == layers // 2 else 0), width) for k in range(layers))
        self.density, self.colour = nn.Linear(width, 1), nn.Sequential(nn.Linear(width + 3, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, points: Tensor, towards: Tensor) -> tuple[Tensor, Tensor]:
        """Map (n, 3) twice to (n, 3) and (n)."""
        turns = points[..., None] * 2.0 ** torch.arange(self.waves, device=points.device)
        place = torch.cat((points, turns.sin().flatten(1), turns.cos().flatten(1)), 1)
        x = F.relu(self.first(place))
        for k, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat((x, place), 1) if k == len(self.layers) // 2 else x))
        return torch.sigmoid(self.colour(torch.cat((x, towards), 1))), F.softplus(self.density(x)[..., 0])


class Doubling(nn.Module):
    """A residual block of a vector-quantized autoencoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` to the same shape."""
        return F.relu(x + self.body(x))


class Quantized(nn.Module):
    """An autoencoder that maps a picture to a few hundred ids of a code book, and back."""

    def __init__(self, width: int, codes: int = 1024, deep: int = 64) -> None:
        super().__init__()
        half = width // 2
        self.encoder = nn.Sequential(
            *(nn.Conv2d(3, half, 4, 2, 1), nn.BatchNorm2d(half), nn.ReLU()),
            *(nn.Conv2d(half, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
            *(Doubling(width), Doubling(width), nn.Conv2d(width, deep, 1)),
        )
        self.codes = nn.Embedding(codes, deep)
        self.decoder = nn.Sequential(
            *(nn.Conv2d(deep, width, 3, 1, 1), Doubling(width), Doubling(width)),
            *(nn.ConvTranspose2d(width, half, 4, 2, 1), nn.BatchNorm2d(half), nn.ReLU()),
            nn.ConvTranspose2d(half, 3, 4, 2, 1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, 3, h, w) to the same shape and the loss of the code book."""
        z = self.encoder(x).float()
        flat = z.movedim(1, -1).reshape(-1, z.shape[1])
        book = self.codes.weight.float()
        nearest = (book.square().sum(1) - 2 * flat @ book.T).argmin(1)
        coded = self.codes(nearest).view(z.shape[0], *z.shape[2:], -1).movedim(-1, 1)
        cost = F.mse_loss(coded, z.detach()) + 0.25 * F.mse_loss(z, coded.detach())
        return self.decoder(z + (coded - z).detach()), cost


class Attend(nn.Module):
    """Attention of one set to another, then a perceptron."""

    def __init__(self, width: int, other: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm_x, self.norm_y, self.norm = nn.LayerNorm(width), nn.LayerNorm(other), nn.LayerNorm(width)
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(other, 2 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Map (batch, n, width) and (batch, m, other) to (batch, n, width)."""
        b, n, width = x.shape
        q = self.q(self.norm_x(x)).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.kv(self.norm_y(y)).view(b, y.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, width))
        return x + self.body(self.norm(x))


class ImagePerceiver(nn.Module):
    """A few hundred latents that attend to every pixel, then to each other."""

    def __init__(self, fused: bool, latents: int, width: int, inputs: int, rounds: int = 3) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, width) * 0.02)
        self.looks = nn.ModuleList(Attend(width, inputs, 8, fused) for _ in range(rounds))
        self.thinks = nn.ModuleList(Attend(width, width, 8, fused) for _ in range(rounds))
        self.out = nn.Linear(width, 100)

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (batch, m, inputs) to (batch, 100)."""
        x = self.latents.expand(len(pixels), -1, -1)
        for look, think in zip(self.looks, self.thinks, strict=True):
            x = look(x, pixels)
            x = think(x, x)
        return self.out(x.mean(1))


class Slots(nn.Module):
    """Slot attention: slots compete for the places of a picture, and gated cells update each slot."""

    def __init__(self, slots: int, width: int, rounds: int = 3) -> None:
        super().__init__()
        self.rounds, self.start = rounds, nn.Parameter(torch.randn(slots, width) * 0.1)
        self.see = nn.Sequential(
            *(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, width, 5, 1, 2), nn.ReLU()),
            *(nn.Conv2d(width, width, 5, 1, 2), nn.ReLU()),
        )
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.cell, self.norm = nn.GRUCell(width, width), nn.LayerNorm(width)
        self.draw = nn.Sequential(
            *(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 32, 4, 2, 1), nn.ReLU()),
            *(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 4, 3, 1, 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to the same shape, reconstructed from the slots alone."""
        b, _, side, _ = x.shape
        places = self.see(x).flatten(2).transpose(1, 2)
        k, v = self.k(places), self.v(places)
        slots = self.start.expand(b, -1, -1)
        for _ in range(self.rounds):
            share = torch.softmax(k @ self.q(self.norm(slots)).transpose(1, 2) / math.sqrt(k.shape[-1]), -1) + 1e-8
            won = (share / share.sum(1, keepdim=True)).transpose(1, 2) @ v
            slots = self.cell(won.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
        small = side // 8
        seen = self.draw(slots.flatten(0, 1)[..., None, None].expand(-1, -1, small, small))
        seen = seen.view(b, -1, 4, side, side)
        return (seen[:, :, :3] * seen[:, :, 3:].softmax(1)).sum(1)


class Land(nn.Module):
    """A land-cover network: strided convolutions, then parallel ones with increasing dilation."""

    def __init__(self, bands: int, width: int, kinds: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for a, b in ((bands, 64), (64, 128), (128, width)):
            parts += [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            parts += [nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.body = nn.Sequential(*parts)
        self.far = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, 128, 3, 1, apart, apart, bias=False), nn.BatchNorm2d(128), nn.ReLU())
            for apart in (1, 6, 12, 18)
        )
        self.out = nn.Conv2d(512, kinds, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, bands, h, w) to (batch, kinds, h, w)."""
        y = self.body(x)
        y = self.out(torch.cat([far(y) for far in self.far], 1))
        return F.interpolate(y.float(), x.shape[-2:], mode="bilinear")
