"""Scenarios of the fifth set: everyday loops of new models, each with one planted problem or none.

A pair differs in one change. They were recorded on an H200 with a slow host after the analysis was written (`record.py --set
fifth`). `docs/evidence/accuracy.md` lists the recordings that were inspected first.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor, nn

from sawtooth.sample_traces.scenario import NONE, Scenario
from sawtooth.sample_traces.sets.fourth.scenarios import scenario
from sawtooth.sample_traces.sets.second import workloads as w
from sawtooth.sample_traces.workload import DEVICE, Workload

COLUMNS, WIDTH = 40, 16  # Columns of a click model's input, and features per column.


class Sharper(nn.Module):
    """Super-resolution with residual blocks without norms and a pixel shuffle, on three channels."""

    def __init__(self, width: int = 96, blocks: int = 10) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.tail = nn.Sequential(
            nn.Conv2d(width, width * 4, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 3, h, w) to (batch, 3, 2 h, 2 w)."""
        x = self.head(x)
        for block in self.body:
            x = x + 0.1 * block(x)
        return self.tail(x)


def sharper(batch: int, last: bool) -> Workload:
    """Return super-resolution of 96 × 96 images by a factor of two, in fp16."""
    data = w.on_gpu(lambda: (torch.randn(batch, 3, 96, 96), torch.randn(batch, 3, 192, 192)))
    loss: w.Loss = lambda f, x, y: F.l1_loss(f(x).float(), y)  # noqa: E731 - passed on
    return w.train(Sharper(), data, loss, samples=batch, precision="fp16", channels_last=last)


def features(batch: int, together: bool) -> Workload:
    """Return a click model whose columns are copied one by one while the host waits, or as one tensor."""
    columns = [torch.randn(batch, WIDTH).pin_memory() for _ in range(COLUMNS)]
    table = torch.cat(columns, 1).pin_memory()
    clicked = torch.rand(batch, 1)

    def batches() -> Iterator[w.Batch]:
        labels = clicked.to(DEVICE)
        while True:
            yield table if together else torch.cat([column.to(DEVICE) for column in columns], 1), labels

    sizes = ((COLUMNS * WIDTH, 2048), (2048, 2048))
    model = nn.Sequential(*(part for a, b in sizes for part in (nn.Linear(a, b), nn.ReLU())), nn.Linear(2048, 1))
    loss: w.Loss = lambda f, x, y: F.binary_cross_entropy_with_logits(f(x).float(), y)  # noqa: E731 - passed on
    return w.train(model, batches(), loss, samples=batch)


class Molecule(nn.Module):
    """A network of messages between atoms, summed at their target."""

    def __init__(self, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.kinds, self.last = nn.Embedding(32, width), nn.Linear(width, 1)
        self.mix = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers)
        )

    def forward(self, kinds: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Map atoms (n) and the ends of their bonds (e) to a value of each atom (n, 1)."""
        x = self.kinds(kinds)
        for mix in self.mix:
            message = mix(torch.cat((x[source], x[target]), 1)).to(x.dtype)
            x = x + torch.zeros_like(x).index_add(0, target, message)
        return self.last(x)


def molecules(batch: int, deterministic: bool) -> Workload:
    """Return training on energies of atoms, with or without deterministic algorithms.

    cuBLAS needs CUBLAS_WORKSPACE_CONFIG=:4096:8 for deterministic algorithms.
    """
    torch.use_deterministic_algorithms(deterministic)
    atoms, bonds = batch * 24, batch * 96
    data = w.on_gpu(
        lambda: (
            torch.randint(0, 32, (atoms,)),
            *(torch.randint(0, atoms, (bonds,)) for _ in range(2)),
            torch.randn(atoms, 1),
        )
    )
    loss: w.Loss = lambda f, kinds, a, b, y: F.mse_loss(f(kinds, a, b).float(), y)  # noqa: E731 - passed on
    return w.train(Molecule(), data, loss, samples=batch, precision="tf32")


# fmt: off
SCENARIOS: dict[str, Scenario] = {
    "sharper_first": scenario("fp16 convolutions in channels-first layout", sharper, 32, False, fix="sharper_last", change="channels_last", rules=("layout-conversions",)),
    "sharper_last": scenario(NONE, sharper, 32, True),
    "features_apart": scenario("40 short copies a step, the host waits for each", features, 4096, False, fix="features_together", change="one copy", rules=("small-copies",)),
    "features_together": scenario(NONE, features, 4096, True),
    "molecules_deterministic": scenario("deterministic algorithms", molecules, 512, True, fix="molecules_free", change="use_deterministic_algorithms(False)", rules=("deterministic-algorithms",)),
    "molecules_free": scenario(NONE, molecules, 512, False),
}
# fmt: on
