"""Dataset of the ninth set: randomly augmented pictures, and captions that are split into words."""

from __future__ import annotations

import random
import re
import zlib

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor
from torch.utils.data import Dataset

WORD = re.compile(r"[a-z']+|\d+|[^\sa-z\d]")
NOUNS = ("dog", "bicycle", "harbour", "market", "bridge", "child's kite", "red umbrella", "train")
PLACES = ("in the rain", "at night", "before a white wall", "near the old station", "on 5th avenue")


class Captioned(Dataset[tuple[Tensor, Tensor]]):
    """An augmented picture and its caption as word ids.

    The picture has 8-bit values. It is cropped, scaled, flipped and brightened.
    """

    def __init__(self, length: int, side: int = 128, files: int = 64) -> None:
        kinds = torch.Generator().manual_seed(0)
        self.length, self.side = length, side
        self.files = torch.randint(0, 256, (files, 3, 180, 240), dtype=torch.uint8, generator=kinds)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the picture (3, side, side) and 16 word ids."""
        picture = self.files[index % len(self.files)]
        size = random.randint(140, 180)
        top, left = random.randint(0, 180 - size), random.randint(0, 240 - size)
        part = picture[None, :, top : top + size, left : left + size].float()
        part = F.interpolate(part, (self.side, self.side), mode="bilinear", antialias=True)[0] / 255
        part = (part * random.uniform(0.8, 1.2)).clamp(0, 1)
        if random.random() < 0.5:
            part = part.flip(-1)
        part = (part - part.mean((1, 2), keepdim=True)) / part.std((1, 2), keepdim=True)
        caption = (
            f"A {random.choice(NOUNS)} and {random.randrange(2, 9)} of the {random.choice(NOUNS)}s {random.choice(PLACES)}."
        )
        numbers = [zlib.crc32(word.encode()) % 19_999 + 1 for word in WORD.findall(caption.lower())][:16]
        return part, torch.tensor(numbers + [0] * (16 - len(numbers)))
