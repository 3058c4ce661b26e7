"""Versions and environment variables of a training process, for the trace (``SET_UP_KEY``).

They can explain why a program is faster in another process. Only listed variables are recorded, because other variables may contain
secrets. The listed variables change the speed of a training.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

SET_UP_KEY = "set_up"  # A trace's JSON has this entry beside the events.
MAX_CHARACTERS = 200  # Longer values are cut, so that the trace stays small.
VARIABLES = frozenset({
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "DATALOADER_NUM_WORKERS", "HIP_VISIBLE_DEVICES", "HSA_FORCE_FINE_GRAIN_PCIE", "KMP_AFFINITY", "KMP_BLOCKTIME", "LD_PRELOAD",
    "MALLOC_ARENA_MAX", "MIOPEN_FIND_MODE", "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OMP_PROC_BIND",
    "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_JIT", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TOKENIZERS_PARALLELISM", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_V8_API_DISABLED", "TORCH_DISTRIBUTED_DEBUG",
})  # fmt: skip
# Variables with these prefixes are recorded too. None of them contains secrets.
PREFIXES = ("NCCL_", "RCCL_", "TORCHINDUCTOR_", "TORCH_NCCL_", "TRITON_")


def variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of the listed environment variables by name, without empty values."""
    names = sorted(name for name in environment if name in VARIABLES or name.startswith(PREFIXES))
    return {name: environment[name][:MAX_CHARACTERS] for name in names if environment[name]}


def note_set_up(profiler: Any, torch: Any) -> None:
    """Write the versions of PyTorch, CUDA or HIP and the environment into a profiler's trace."""
    with contextlib.suppress(Exception):  # Errors of the recorder must not end a training.
        libraries = torch.version
        runtime = getattr(libraries, "cuda", None) or getattr(libraries, "hip", None)
        set_up = {"torch": str(torch.__version__), "runtime": runtime, "environment": variables()}
        profiler.add_metadata_json(SET_UP_KEY, json.dumps(set_up))
