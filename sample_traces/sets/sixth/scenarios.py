"""Scenarios of the sixth set: loops of new models, in pairs that differ in one change.

They were recorded on an H200 (`record.py --set sixth`) after the analysis was written. `docs/evidence/accuracy.md` lists the
recordings that were inspected first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.sets.sixth import models as m
from sawtooth.sample_traces.sets.third.scenarios import scenario as third_scenario
from sawtooth.sample_traces.workload import DEVICE, Workload, count_params

TIMING: dict[str, Any] = {"timed_s": 4.2, "after_s": 0.8, "synced_steps": 6}


def density(batch: int, prints: bool) -> Workload:
    """Return the training of a normalizing flow over 64 columns; `prints` prints figures in every step."""
    flow = nn.ModuleList(m.Coupling(64, 256, bool(index % 2)) for index in range(12)).to(DEVICE)
    adam = torch.optim.AdamW(flow.parameters(), 1e-4, fused=True)
    data = w.on_gpu(lambda: (torch.randn(batch, 64),))
    w.precision_context("tf32")
    journal = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115 - open as long as the loop runs

    def step() -> None:
        x, volumes = next(data)[0], []
        for layer in flow:
            x, volume = layer(x)
            volumes.append(volume)
            if prints:
                print("scale", float(volume.mean()), file=journal)
        volume = torch.stack(volumes).sum(0)
        loss = (0.5 * x.square().sum(1) - volume).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if prints:
            print("loss", loss, "spread", x.std(), file=journal)

    return Workload(step, count_params(flow), batch, close=journal.close)


def likeness(batch: int, habit: str = "") -> Workload:
    """Return a variational autoencoder's training; the habit "copies" copies images to the host."""
    figures: list[float] = []

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        like, mean, log_var = model(x)
        if habit == "copies":
            shown, right = like.detach().float().cpu().numpy(), x.cpu().numpy()
            figures.append(float(-10 * np.log10(((shown - right) ** 2).mean())))
        return F.mse_loss(like.float(), x) - 0.5e-4 * (1 + log_var - mean.square() - log_var.exp()).float().mean()

    return w.train(m.Autoencoder(), w.on_gpu(lambda: w.images(batch, 128)[:1]), loss, samples=batch)


def scenario(*words: Any, **options: Any) -> Scenario:
    """Return a scenario of this set."""
    return third_scenario(*words, plan=TIMING, **options)


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "density_prints": scenario("figures of each layer are printed", density, 4096, True, fix="density", change="nothing is printed", rules=("host-waits-for-gpu",)),
    "density": scenario(NONE, density, 4096, False),
    "likeness_copies": scenario("pictures are copied to the host and measured there", likeness, 64, "copies", fix="likeness", change="nothing is copied", rules=("host-waits-for-gpu",)),
    "likeness": scenario(NONE, likeness, 64),
}
# fmt: on
