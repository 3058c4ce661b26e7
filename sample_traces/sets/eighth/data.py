"""Datasets of the eighth set: sounds with spectrograms made one by one, and events in JSON lines."""

from __future__ import annotations

import itertools
import json
import random

import torch
from torch import Tensor
from torch.utils.data import Dataset

KINDS = ("view", "search", "cart", "buy", "return", "rate")


class SoundFiles(Dataset[tuple[Tensor, int]]):
    """Two seconds of sound, with changed volume and shift, as a spectrogram of 64 bands."""

    def __init__(self, length: int, rate: int = 16_000, files: int = 200) -> None:
        kinds = torch.Generator().manual_seed(0)
        self.length, self.waves = length, torch.randn(files, 2 * rate, generator=kinds)
        self.window, self.bands = torch.hann_window(1024), torch.rand(64, 513, generator=kinds)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the spectrogram (1, 64, frames) and its class."""
        wave = torch.roll(self.waves[index % len(self.waves)], random.randrange(8_000)) * random.uniform(0.5, 1.5)
        waves = torch.stft(wave, 1024, 256, window=self.window, return_complex=True).abs().square()
        bands = torch.log(self.bands @ waves + 1e-6)
        at = random.randrange(bands.shape[1] - 16)
        bands[:, at : at + 16] = 0.0
        return ((bands - bands.mean()) / bands.std())[None], index % 50


class Events(Dataset[tuple[Tensor, Tensor, float]]):
    """Actions of customers, one line of JSON each: the last forty actions with the times between them."""

    def __init__(self, length: int, lines: int = 3_000, long: int = 40) -> None:
        kinds = random.Random(0)
        self.length, self.long = length, long
        self.lines = [
            json.dumps(
                {
                    "customer": f"c{kinds.randrange(1 << 30):x}",
                    "events": [
                        {
                            "t": kinds.random() * 1e6,
                            "kind": kinds.choice(KINDS),
                            "item": f"sku-{kinds.randrange(20_000)}",
                            "price": 9.5,
                        }
                        for _ in range(long)
                    ],
                    "left": kinds.randrange(2),
                }
            )
            for _ in range(lines)
        ]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, float]:
        """Return item ids (long), figures of the events (long, 3), and 1 if the customer left, else 0."""
        line = json.loads(self.lines[index % len(self.lines)])
        events = sorted(line["events"], key=lambda event: event["t"])
        items = [int(event["item"].split("-")[1]) for event in events]
        last = [0.0] + [b["t"] - a["t"] for a, b in itertools.pairwise(events)]
        figures = [(KINDS.index(event["kind"]), event["price"], gap / 1e6) for event, gap in zip(events, last, strict=True)]
        return torch.tensor(items), torch.tensor(figures), float(line["left"])
