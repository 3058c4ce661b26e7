"""Small models of the eighth set in plain PyTorch: sound, text and numerical models."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.sets.eighth.large import LargeResidual


def heart(width: int = 64, classes: int = 5) -> nn.Sequential:
    """Return a network that predicts heart diseases from twelve leads, by residual convolutions over time."""
    parts: list[nn.Module] = [nn.Conv1d(12, width, 15, 2, 7), nn.BatchNorm1d(width), nn.ReLU()]
    for k in range(6):
        a, b = width << (k // 2), width << ((k + 1) // 2)
        body = nn.Sequential(
            nn.Conv1d(a, a, 7, 1, 3), nn.BatchNorm1d(a), nn.ReLU(), nn.Conv1d(a, a, 7, 1, 3), nn.BatchNorm1d(a)
        )
        parts += [LargeResidual(body), nn.ReLU(), nn.Conv1d(a, b, 3, 2 if k % 2 else 1, 1)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width << 3, classes))


class Change(nn.Module):
    """The derivative of a state at a time, which a neural differential equation integrates."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((width + 1, inner), (inner + 1, inner), (inner + 1, width)))

    def forward(self, t: float, y: Tensor) -> Tensor:
        """Map (batch, width) to the same shape."""
        for k, layer in enumerate(self.layers):
            y = layer(torch.cat((y, torch.full_like(y[:, :1], t)), 1))
            y = torch.tanh(y) if k < 2 else y
        return y

    def integrate(self, y: Tensor, times: int) -> Tensor:
        """Integrate from 0 to 1 with the fourth-order Runge-Kutta method."""
        h = 1 / times
        for k in range(times):
            t = k * h
            a = self(t, y)
            b = self(t + h / 2, y + h / 2 * a)
            c = self(t + h / 2, y + h / 2 * b)
            d = self(t + h, y + h * c)
            y = y + h / 6 * (a + 2 * b + 2 * c + d)
        return y


class SpeechBlock(nn.Module):
    """FastSpeech's block: attention, then convolutions over time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Conv1d(width, 4 * width, 9, 1, 4), nn.Conv1d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        x = self.norm_1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm_2(x + self.narrow(F.relu(self.wide(x.transpose(1, 2)))).transpose(1, 2))


class Speaker(nn.Module):
    """FastSpeech 2: maps the sounds of a text, each with a duration in frames, to a spectrogram."""

    def __init__(self, row_by_row: bool, sounds: int = 80, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.row_by_row, self.sounds = row_by_row, nn.Embedding(sounds, width)
        self.encoder = nn.Sequential(*(SpeechBlock(width) for _ in range(layers)))
        self.decoder = nn.Sequential(*(SpeechBlock(width) for _ in range(layers)))
        self.long = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.mel = nn.Linear(width, 80)

    def stretched(self, x: Tensor, frames: Tensor, length: int) -> Tensor:
        """Repeat each sound for its number of frames.

        Maps (batch, n, width) and (batch, n) to (batch, length, width).
        """
        if self.row_by_row:
            rows = []
            for sound, count in zip(x, frames, strict=True):
                row = torch.repeat_interleave(sound, count, dim=0)
                rows.append(F.pad(row, (0, 0, 0, length - row.shape[0])))
            return torch.stack(rows)
        ends = frames.cumsum(1)
        at = torch.searchsorted(ends, torch.arange(length, device=x.device).expand(len(x), -1).contiguous(), right=True)
        here = at.clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2])
        return x.gather(1, here) * (at < x.shape[1])[..., None]

    def forward(self, sounds: Tensor, frames: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Map (batch, n) twice to (batch, length, 80) and (batch, n)."""
        x = self.encoder(self.sounds(sounds))
        return self.mel(self.decoder(self.stretched(x, frames, length))), self.long(x.detach())[..., 0]


class Nearby(nn.Module):
    """A Longformer's layer, whose attention is limited by a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = width // 64, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, n, width) to the same shape."""
        b, n, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, n, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(b, n, width))
        return x + self.body(self.norm_2(x))


class DocumentModel(nn.Module):
    """A classifier of long documents."""

    def __init__(self, words: int, width: int, layers: int, length: int, kinds: int = 30) -> None:
        super().__init__()
        self.words, self.where = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers, self.out = nn.ModuleList(Nearby(width) for _ in range(layers)), nn.Linear(width, kinds)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, n) and (n, n) to (batch, kinds)."""
        x = self.words(words) + self.where[: words.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        return self.out(x[:, 0])


class Fourier(nn.Module):
    """A Fourier neural operator, which maps the present field to a later field."""

    def __init__(self, width: int, modes: int, layers: int = 4) -> None:
        super().__init__()
        self.modes, self.into, self.out = (
            modes,
            nn.Conv2d(3, width, 1),
            nn.Sequential(nn.Conv2d(width, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1)),
        )
        self.past = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))
        self.weights = nn.ParameterList(
            torch.randn(2, modes, modes, width, width, 2) / width / math.sqrt(2) for _ in range(layers)
        )

    def spectral(self, x: Tensor, weight: Tensor) -> Tensor:
        """Map (batch, width, h, w) to the same, through the lowest frequencies."""
        m, kernel = self.modes, torch.view_as_complex(weight)
        waves = torch.fft.rfft2(x.float(), norm="ortho")
        out = torch.zeros_like(waves)
        out[:, :, :m, :m] = torch.einsum("bixy,xyio->boxy", waves[:, :, :m, :m], kernel[0])
        out[:, :, -m:, :m] = torch.einsum("bixy,xyio->boxy", waves[:, :, -m:, :m], kernel[1])
        return torch.fft.irfft2(out, x.shape[-2:], norm="ortho")

    def forward(self, field: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to (batch, 1, h, w)."""
        x = self.into(field)
        for past, weight in zip(self.past, self.weights, strict=True):
            x = F.gelu(self.spectral(x, weight) + past(x))
        return self.out(x)
