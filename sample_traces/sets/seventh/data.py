"""Datasets of the seventh set: pictures of people with their joints, and lines of a click log."""

from __future__ import annotations

import random
import re

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

JOINTS = 17


class People(Dataset[tuple[Tensor, Tensor]]):
    """Pictures of people with heat maps of their joints.

    NumPy rotates each picture and changes its colours on access.
    """

    def __init__(self, length: int, side: int = 256, files: int = 64) -> None:
        kinds = np.random.default_rng(0)
        self.length, self.side = length, side
        self.pictures = kinds.integers(0, 256, (files, side, side, 3), dtype=np.uint8)
        self.joints = kinds.random((files, JOINTS, 2), dtype=np.float32) * side / 4

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the picture (3, side, side) and the heat maps (17, side ÷ 4, side ÷ 4)."""
        row = index % len(self.pictures)
        picture, joints = self.pictures[row].astype(np.float32) / 255, self.joints[row]
        if random.random() < 0.5:
            picture, joints = picture[:, ::-1], joints * (-1, 1) + (self.side / 4, 0)
        picture = picture * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1)
        y, x = np.mgrid[: self.side // 4, : self.side // 4].astype(np.float32)
        maps = np.stack([np.exp(-((x - a) ** 2 + (y - b) ** 2) / 8) for a, b in joints]).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1), np.float32)), torch.from_numpy(maps)


class ClickLog(Dataset[tuple[Tensor, float]]):
    """Lines of a log, one per sample: ids in columns, and whether there was a click."""

    def __init__(self, lines: int = 20_000, columns: int = 26, things: int = 40_000) -> None:
        kinds = random.Random(0)
        self.things = things
        self.lines = [
            "\t".join([str(kinds.randrange(2)), *(f"{kinds.randrange(1 << 32):08x}" for _ in range(columns))])
            for _ in range(lines)
        ]

    def __len__(self) -> int:
        return 50_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        """Return the columns, and 0 or 1."""
        clicked, *columns = self.lines[index % len(self.lines)].split("\t")
        return torch.tensor([int(column, 16) % self.things for column in columns]), float(clicked)


class Corpus:
    """Texts that are split into words and looked up in a dictionary."""

    def __init__(self, texts: int = 2_000, words: int = 30_000, length: int = 200) -> None:
        kinds = random.Random(0)
        self.length = length
        self.texts = [" ".join(f"Word{kinds.randrange(words * 2)}," for _ in range(length)) for _ in range(texts)]
        self.labels = [kinds.randrange(20) for _ in range(texts)]
        self.words = {f"word{index}": index + 2 for index in range(words)}

    def numbers(self, text: str) -> list[int]:
        """Return the ids of a text's words; 1 is for unknown words, 0 is padding."""
        numbers = [self.words.get(word, 1) for word in re.findall(r"[a-z0-9]+", text.lower())][: self.length]
        return numbers + [0] * (self.length - len(numbers))
