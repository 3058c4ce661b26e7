"""Small objects in place of the user's own (model, loader, …), so that suggested code can run."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import random
import re
from types import SimpleNamespace
from typing import Any

SHELL = re.compile(r"^(?:\w+=\S+ )*(?:python|nvidia-smi|find|sawtooth)\b")


def without_omissions(text: str) -> str:
    """Return suggested code without its omitted arguments.

    Code that ends in the head of a block gets a body.
    """
    text = text.replace(", …", "").replace("…, ", "").replace("(..., ", "(")
    last = text.splitlines()[-1].split("#")[0].rstrip()
    return f"{text}\n    pass" if last.endswith(":") else text


def stand_ins() -> dict[str, Any]:
    """Return the small objects by the names that the examples use for the user's objects."""
    import numpy as np
    import torch
    import torch.nn.functional as F  # noqa: N812 - the name of PyTorch users
    from torch import nn
    from torch.profiler import profile, schedule
    from torch.utils.data import DataLoader, Dataset

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.trunk, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.blocks = [self.trunk]

        def forward(self, x: Any, y: Any = None, scale: Any = 1) -> Any:
            out = self.head(self.trunk(self.encoder(x))) * scale
            return out if y is None else out.mean()

        no_sync = staticmethod(contextlib.nullcontext)

    model, x, loss = Net(), torch.randn(8, 4), torch.randn(8, 4, requires_grad=True).mean()
    model(x).sum().backward()
    q = torch.randn(1, 2, 8, 8)
    model_like = SimpleNamespace(
        lstm=None,
        paths=[1],
        files=[],
        decoded=[x],
        w=torch.randn(3, 4, 4),
        register_buffer=lambda *a, **k: None,
        base=[x],
        rows=[0],
    )
    return {
        "torch": torch, "nn": nn, "F": F, "np": np, "os": os, "gc": gc, "random": random, "copy": copy, "profile": profile, "schedule": schedule,
        "DataLoader": DataLoader, "Dataset": Dataset, "Net": Net, "model": model, "x": x, "y": torch.zeros(8, dtype=torch.long), "loss": loss,
        "device": "cpu", "dataset": [x] * 4, "images_padded_to_a_few_sizes": [x] * 4, "pad": list, "loader": [x] * 2, "batch": x, "micro_batches": [x] * 2,
        "targets": x, "target": torch.zeros(8, dtype=torch.long), "logits": torch.randn(8, 4), "mask": torch.zeros(8, 8), "q": q, "k": q, "v": q,
        "images": torch.zeros(2, 3, 50, 50), "mean": 0.0, "std": 1.0, "chosen": torch.tensor([2, 0, 1, 0, 2, 1, 0, 0]), "out": torch.zeros(8, 4),
        "rows": list(range(8)), "weight": torch.ones(8), "values": [1.0], "scalars": [1.0, 2.0], "self": model_like, "policy": model, "observation": np.zeros((8, 4), np.float32),
        "running": torch.zeros(()), "step": 1000, "right": torch.zeros((), dtype=torch.long), "losses": [], "limit": 1.0, "scale": torch.ones(()), "i": 3, "n": 4, "eps": 1e-6, "width": 4, "sizes": [3, 5], "hidden": 4,
        "opt": torch.optim.SGD(model.parameters(), 0.1), "optimizer": torch.optim.SGD(model.parameters(), 0.1), "lengths": torch.arange(8), "state": {}, "path": "", "pending": SimpleNamespace(result=list),
        "blocks": model.blocks, "teacher": model, "ema": copy.deepcopy(model).requires_grad_(False), "heads": 2, "transform": nn.Identity(), "list_of_paths": ["a"], "augment": list, "decode": list, "table": [x], "train": model, "log": print,
        "save": list, "extra_work": list, "fully_shard": list, "token": torch.zeros(8), "end": 1, "ended": torch.zeros(8, dtype=torch.bool), "prof": None, "f": nn.Identity(),
        "loss_fn": F.cross_entropy, "inputs": x, "labels": torch.zeros(8, dtype=torch.long),
        "done": [SimpleNamespace(record=list, query=lambda: True, synchronize=list)] * 2,
        "costs": [torch.rand(3, 3)] * 2, "linear_sum_assignment": lambda cost: (range(len(cost)), cost.argmin(1)),
    }  # fmt: skip


NEEDS: dict[str, dict[str, Any]] = {  # Objects for examples in which a name has another meaning.
    "heads_one_by_one PyTorch 1": {"q": "tokens", "k": "tokens", "v": "tokens"},
    "host_reads PyTorch 1": {"mask": "padding"},
    "host_reads PyTorch 2": {"mask": "padding"},
    "tables_one_by_one PyTorch 1": {"self": "module"},
    "tables_one_by_one PyTorch 2": {"self": "module", "x": "indices"},
    "tables_one_by_one PyTorch 3": {"self": "module", "x": "bags"},
    "unfused_norm PyTorch 1": {"weight": "columns"},
    "recurrent_cells PyTorch 1": {"x": "sequence"},
    "dense_table_gradients PyTorch 1": {"model": "table"},
    "dense_table_gradients PyTorch 2": {"self": "looks_up", "head": "few indices", "tail": "few indices"},
    "layout_conversions PyTorch 3": {"x": "signal"},
    "layout_conversions PyTorch 1": {"loader": "pictures"},
    "layout_conversions PyTorch 4": {"loader": "volumes"},
    "plans_for_new_shapes PyTorch 2": {"model": "identity"},
    "samples_one_by_one PyTorch 1": {"loss": "loss_function"},
    "accumulation_syncs PyTorch 1": {"loss": "mean"},
    "small_copies PyTorch 1": {"batch": "dictionary"},
}


def special(kind: str) -> Any:
    import torch
    from torch import nn

    made = {
        "padding": lambda: torch.zeros(8, dtype=torch.bool),
        "columns": lambda: torch.ones(4),
        "sequence": lambda: torch.randn(2, 3, 4),
        "tokens": lambda: torch.randn(2, 8, 16),
        "signal": lambda: torch.randn(2, 3, 16),
        "pictures": lambda: [(torch.randn(2, 3, 4, 4), 0)],
        "volumes": lambda: [(torch.randn(2, 3, 4, 4, 4), 0)],
        "identity": nn.Identity,
        "module": nn.Module,
        "indices": lambda: torch.zeros(8, 2, dtype=torch.long),
        "bags": lambda: torch.zeros(8, 2, 3, dtype=torch.long),
        "table": lambda: nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 4)),
        "looks_up": lambda: SimpleNamespace(table=nn.Embedding(8, 4)),
        "few indices": lambda: torch.zeros(3, dtype=torch.long),
        "loss_function": nn.MSELoss,
        "mean": lambda: torch.mean,
        "dictionary": dict,
    }
    return made[kind]()
