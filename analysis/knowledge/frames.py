"""How torch.profiler writes a Python call, and which calls are the user's own code: neither PyTorch's, nor a library's, nor Python's."""

from __future__ import annotations

import re
import sys

RECORDER = re.compile(r"^(.*/)?(sawtooth/)?ingest/(capture|loop)/")  # Sawtooth's own hook in the training
FRAME = re.compile(r"^(?P<file>[^<>]+\.pyx?)\((?P<line>\d+)\): (?P<function>.+)$")
LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python[\d.]+|torch|torchvision|torchaudio|triton|lightning|lightning_fabric|pytorch_lightning|"
    r"transformers|accelerate|deepspeed|apex|numpy|pandas|PIL|tqdm|datasets)/|^<frozen "
)


def is_user_line(name: str) -> bool:
    """Tell whether a frame such as ``train.py(12): step`` is the user's own code."""
    match = FRAME.match(name)
    if match is None or LIBRARY.search(name) or RECORDER.match(name):
        return False
    top = match["file"].split("/")[0].removesuffix(".py")
    return top not in sys.stdlib_module_names or top == "profile"
