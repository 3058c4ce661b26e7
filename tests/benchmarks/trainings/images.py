"""Train a small ResNet on JPEGs with a planted fault.

There are no loader workers, so the training process decodes the JPEGs.
"""

from __future__ import annotations

import argparse
import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

FILES, CLASSES = 64, 100


class Photos(Dataset[tuple[Tensor, int]]):
    """Random pictures as JPEG files in memory, decoded to squares of ``size`` pixels."""

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(0)
        self.size, self.files = size, [_jpeg(rng) for _ in range(FILES)]

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = Image.open(io.BytesIO(self.files[i % FILES])).convert("RGB").resize((self.size, self.size))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, i % CLASSES


def _jpeg(rng: np.random.Generator) -> bytes:
    small = Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).resize((320, 320))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=90)
    return file.getvalue()


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
        *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    blocks = [_block(inputs, outputs) for inputs, outputs in ((3, 64), (64, 128), (128, 256), (256, 512))]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for step, (x, y) in enumerate(DataLoader(Photos(options.size), batch_size=options.batch, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            if step % 100 == 0:
                print(epoch, step, value, flush=True)


if __name__ == "__main__":
    main()
