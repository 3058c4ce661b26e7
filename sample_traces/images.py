"""JPEG images that the CPU decodes, crops and flips one by one, as an image loader does."""

from __future__ import annotations

import io
import random

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset


def make_jpegs(count: int, side: int, seed: int = 0) -> list[bytes]:
    """Return `count` JPEG files of `side` x `side` pixels.

    They have smooth colours with some noise, so that they decode like photographs.
    """
    rng, files = np.random.default_rng(seed), []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.int16)
        pixels = np.clip(smooth + rng.integers(-12, 13, (side, side, 3)), 0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


class JpegImages(Dataset[tuple[Tensor, int]]):
    """Training images: each access decodes a JPEG, crops it at random and resizes it to 224 x 224.

    Half of the images are also flipped.
    """

    def __init__(self, length: int, side: int, files: int = 256) -> None:
        self.length, self.files = length, make_jpegs(files, side)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the image as (3, 224, 224) uint8, and its class."""
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        edge = int(min(image.size) * random.uniform(0.6, 1.0))
        left, top = random.randint(0, image.width - edge), random.randint(0, image.height - edge)
        image = image.resize((224, 224), Image.Resampling.BILINEAR, (left, top, left + edge, top + edge))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()), index % 1000
