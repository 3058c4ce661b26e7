"""Files of batches as the recorder writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FIRST = (4, 900_000_000, 1, 0, 0)  # The first batch takes long, because of imports and a cold cache.


def write_batches(
    folder: Path,
    pid: int,
    workers: int,
    lines: Sequence[Sequence[int]],
    dataset: str = "train:100",
    parent: int | None = None,
) -> None:
    text = [json.dumps({"dataset": dataset, "workers": workers, "parent": parent})]
    text += [json.dumps(dict(zip(("n", "wall", "cpu", "collate", "collate_cpu"), line, strict=True))) for line in lines]
    (folder / f"batches-{pid}.jsonl").write_text("\n".join(text) + "\n")
