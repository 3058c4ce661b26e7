"""Scenarios of the eighth set: loops of an engine with hooks, with one common mistake each or none."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.eighth.engine import train
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.third.scenarios import scenario as timed_as_third
from sawtooth.sample_traces.workload import Workload

TIMING: dict[str, Any] = {"timed_s": 4.2, "after_s": 0.8, "synced_steps": 5, "first_steps": 4}


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


def fields(batch: int, side: int = 128) -> Workload:
    """Return the prediction of a later field and its slopes from the present field."""

    def losses(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        out = net(x)
        slopes = sum((F.mse_loss(out.diff(dim=d), y.diff(dim=d)) for d in (2, 3)), out.new_zeros(()))
        return {"field": (out - y).flatten(1).norm(dim=1).mean() / y.flatten(1).norm(dim=1).mean(), "slopes": slopes}

    data = w.on_gpu(lambda: (torch.randn(batch, 3, side, side), torch.randn(batch, 1, side, side)), 2)
    return train(Fourier(64, 16), data, losses, batch, amp="tf32")


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return timed_as_third(*words, plan=TIMING | options.pop("plan", {}), **options)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "fields": scenario(NONE + " (healthy)", fields, 48),
}
# fmt: on
