"""Code that findings suggest is valid, and runs on a CPU with small stand-ins for the user's objects."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import inspect
import os
import random
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.code_changes import code_changes

CHANGES = code_changes()
SHELL = re.compile(r"^(?:\w+=\S+ )*(?:python|nvidia-smi|find|sawtooth)\b")
# What a CPU, or PyTorch alone, cannot run. Their syntax is checked; docs/evidence/suggested_code.md says where they ran.
ELSEWHERE = {
    "graph_code PyTorch 1": "CUDA graph",
    "graph_code PyTorch 5": "CUDA graph",
    "graph_code PyTorch 6": "process group",
    "acting_in_the_loop PyTorch 1": "gymnasium",
    "casts PyTorch 2": "process group",
    "copies_not_overlapped PyTorch 1": "CUDA streams",
    **{f"exposed_communication PyTorch {number}": "process group" for number in range(1, 8)},
    "fp8_products PyTorch 1": "torchao",
    "fsdp_prefetch PyTorch 1": "process group",
    "fsdp_reshard PyTorch 1": "process group",
    "gradients_reduced_after PyTorch 1": "process group",
    "pipeline_bubble PyTorch 1": "process group",
    "small_collectives PyTorch 1": "process group",
    "steps_not_marked PyTorch 4": "NVTX",
}


def on_cpu(text: str) -> str:
    """Return the code without the omitted arguments, for a CPU, where no memory can be pinned."""
    text = text.replace(", …", "").replace("…, ", "").replace("(..., ", "(")
    text = re.sub(r"\.cuda\((non_blocking=True)?\)", '.to("cpu")', text).replace(".pin_memory()", "")
    text = re.sub(r"(['\"])cuda\1", '"cpu"', text).replace("pin_memory=True", "pin_memory=False")
    last = text.splitlines()[-1].split("#")[0].rstrip()
    return f"{text}\n    pass" if last.endswith(":") else text


def stand_ins() -> dict[str, Any]:
    """Return small objects under the names that the examples use for the user's own."""
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
        "running": torch.zeros(()), "step": 1000, "right": torch.zeros((), dtype=torch.long), "losses": [], "limit": 1.0, "scale": torch.ones(()), "i": 3, "n": 4, "eps": 1e-6, "width": 4, "hidden": 4,
        "opt": torch.optim.SGD(model.parameters(), 0.1), "optimizer": torch.optim.SGD(model.parameters(), 0.1), "lengths": torch.arange(8), "state": {}, "path": "", "pending": SimpleNamespace(result=list),
        "blocks": model.blocks, "teacher": model, "transform": nn.Identity(), "list_of_paths": ["a"], "augment": list, "decode": list, "table": [x], "train": model, "log": print,
        "save": list, "extra_work": list, "fully_shard": list, "token": torch.zeros(8), "end": 1, "ended": torch.zeros(8, dtype=torch.bool), "prof": None, "f": nn.Identity(),
        "costs": [torch.rand(3, 3)] * 2, "linear_sum_assignment": lambda cost: (range(len(cost)), cost.argmin(1)),
    }  # fmt: skip


NEEDS: dict[str, dict[str, Any]] = {  # Names that mean something else in these examples.
    "host_reads PyTorch 1": {"mask": "padding"},
    "host_reads PyTorch 2": {"mask": "padding"},
    "unfused_norm PyTorch 1": {"weight": "columns"},
    "recurrent_cells PyTorch 1": {"x": "sequence"},
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
        "signal": lambda: torch.randn(2, 3, 16),
        "pictures": lambda: [(torch.randn(2, 3, 4, 4), 0)],
        "volumes": lambda: [(torch.randn(2, 3, 4, 4, 4), 0)],
        "identity": nn.Identity,
        "loss_function": nn.MSELoss,
        "mean": lambda: torch.mean,
        "dictionary": dict,
    }
    return made[kind]()


@pytest.mark.parametrize("name", CHANGES)
def test_suggested_code_is_valid(name: str) -> None:
    change = CHANGES[name].filled()
    if change.framework in ("PyTorch", "Lightning", "Transformers"):
        for text in (change.before, change.after):
            assert SHELL.match(text) or ast.parse(on_cpu(text)) is not None


PYTORCH = [name for name, change in CHANGES.items() if change.framework == "PyTorch" and not SHELL.match(change.after)]


@pytest.mark.filterwarnings("ignore")  # More workers than cores, and deprecations inside PyTorch.
@pytest.mark.parametrize("name", [name for name in PYTORCH if name not in ELSEWHERE])
def test_suggested_code_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    takes = inspect.signature(torch.compile)  # Compiling itself takes seconds.
    monkeypatch.setattr(torch, "compile", lambda *models, **how: takes.bind(*models, **how).args[0])
    monkeypatch.setattr(torch.nn.Module, "compile", lambda _model, **how: takes.bind(None, **how) and None)
    monkeypatch.setattr("torch.distributed.checkpoint.async_save", lambda *_a, **_k: None)
    names = stand_ins() | {key: special(kind) for key, kind in NEEDS.get(name, {}).items()} | {"path": str(tmp_path)}
    flags = (
        torch.backends.cudnn.benchmark,
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
    )
    try:
        exec(compile(on_cpu(CHANGES[name].filled().after), name, "exec"), names)
    finally:
        gc.enable()
        gc.unfreeze()
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = flags[0], flags[3]
        torch.backends.cuda.enable_cudnn_sdp(flags[1])
        torch.set_float32_matmul_precision(flags[2])
