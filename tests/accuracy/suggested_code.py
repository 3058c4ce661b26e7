"""Run every suggested code change for PyTorch on GPUs, in one process group, and print what happened.

    torchrun --nproc_per_node 2 -m tests.accuracy.suggested_code

The user's objects are small stand-ins on the GPU. Nothing else is replaced: memory is pinned, code compiles, graphs are captured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
import warnings

import torch
import torch.distributed as dist

from tests.support.code_changes import code_changes
from tests.support.stand_ins import NEEDS, SHELL, special, stand_ins, without_omissions

CHANGES = code_changes()


def run(name: str) -> str:
    """Return "ran", or the error of one change."""
    with torch.device("cuda"):
        names = stand_ins() | {key: special(kind) for key, kind in NEEDS.get(name, {}).items()}
    names |= {"device": "cuda", "path": tempfile.mkdtemp()}
    for key in ("dataset", "images_padded_to_a_few_sizes"):
        names[key] = [item.cpu() for item in names[key]]
    try:
        exec(compile(without_omissions(CHANGES[name].filled().after), name, "exec"), names)
        torch.cuda.synchronize()
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == name]
        return f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''} (line {lines[-1] if lines else '?'})"
    return "ran"


def main() -> None:
    warnings.filterwarnings("ignore")
    rank = int(os.environ.get("RANK", "0"))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    names = [name for name, change in CHANGES.items() if change.framework == "PyTorch" and not SHELL.match(change.after)]
    only = sys.argv[1:]
    for name in names:
        if only and not any(item in name for item in only):
            continue
        began = time.monotonic()
        outcome = run(name)
        if rank == 0:
            print(f"{name}: {outcome}; {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
