"""Tests of suggested code: it is valid and runs on a CPU.

The user's objects are small stand-ins.
"""

from __future__ import annotations

import ast
import gc
import inspect
import re
from typing import Any

import pytest

from tests.support.code_changes import code_changes
from tests.support.stand_ins import NEEDS, SHELL, special, stand_ins, without_omissions

CHANGES = code_changes()
# Code that a CPU, or PyTorch alone, cannot run. Only its syntax is checked. docs/evidence/advice.md says where it ran.
ELSEWHERE = {
    "graph_code PyTorch 1": "CUDA graph",
    "graph_code PyTorch 5": "CUDA graph",
    "graph_code PyTorch 6": "process group",
    "graph_code PyTorch 7": "process group",
    "acting_in_the_loop PyTorch 1": "gymnasium",
    "casts PyTorch 2": "process group",
    "copies_not_overlapped PyTorch 1": "CUDA streams",
    **{f"exposed_communication PyTorch {number}": "process group" for number in range(1, 8)},
    "fp8_products PyTorch 1": "torchao",
    "fsdp_prefetch PyTorch 1": "process group",
    "fsdp_reshard PyTorch 1": "process group",
    "gradients_reduced_after PyTorch 1": "process group",
    "periodic_stalls PyTorch 2": "process group",
    "pipeline_bubble PyTorch 1": "process group",
    "pipeline_bubble PyTorch 2": "process group",
    "small_collectives PyTorch 1": "process group",
    "small_collectives PyTorch 3": "process group",  # Runs below, in a group of one process.
    "steps_not_marked PyTorch 4": "NVTX",
    "unused_parameter_search PyTorch 1": "process group",
}


def on_cpu(text: str) -> str:
    """Return the code without the omitted arguments, for a CPU, where no memory can be pinned."""
    text = re.sub(r"\.cuda\((non_blocking=True)?\)", '.to("cpu")', without_omissions(text)).replace(".pin_memory()", "")
    return re.sub(r"(['\"])cuda\1", '"cpu"', text).replace("pin_memory=True", "pin_memory=False")


@pytest.mark.parametrize("name", CHANGES)
def test_suggested_code_is_valid(name: str) -> None:
    change = CHANGES[name].filled()
    if change.framework in ("PyTorch", "Lightning", "Transformers"):
        for text in (change.before, change.after):
            assert SHELL.match(text) or ast.parse(on_cpu(text)) is not None


@pytest.mark.filterwarnings("ignore")  # PyTorch's own module uses a deprecated function.
def test_sharded_optimizer_with_buckets_runs() -> None:
    """The user has imported the optimizer already, because the present code names it, too."""
    pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer

    name = "small_collectives PyTorch 3"
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        names = stand_ins() | {"ZeroRedundancyOptimizer": ZeroRedundancyOptimizer}
        exec(compile(on_cpu(CHANGES[name].filled().after), name, "exec"), names)
        assert names["opt"].parameters_as_bucket_view
    finally:
        dist.destroy_process_group()


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
