"""Train a deep narrow network of many small kernels with a planted fault.

The network is not compiled. With --loader, two workers deliver pageable batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LAYERS, BATCH, SAMPLES = 256, 24, 256, 65536


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(nn.functional.silu(self.a(self.norm(x))) * 0.5)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, 1)).to("cuda")
    data = torch.randn(SAMPLES, WIDTH)
    loader = DataLoader(TensorDataset(data), batch_size=BATCH, num_workers=2, shuffle=True, persistent_workers=True)
    loads = "--loader" in sys.argv
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=None if loads else True)
    data = data.to("cuda")
    for epoch in range(1000):
        total = torch.zeros((), device="cuda")
        batches: Iterable[Tensor] = data[torch.randperm(SAMPLES, device="cuda")].split(BATCH)
        for x in (batch.to("cuda") for (batch,) in loader) if loads else batches:
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(epoch, float(total), flush=True)


if __name__ == "__main__":
    main()
