"""The user's own source line behind a recorded Python call: the frames of PyTorch, of libraries and of Python itself are climbed over."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from analysis.recordings import Recording

FRAME = re.compile(r"^(?P<file>[^<>]+\.pyx?)\((?P<line>\d+)\): (?P<function>.+)$")
LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python[\d.]+|torch|torchvision|torchaudio|triton|lightning|lightning_fabric|pytorch_lightning|"
    r"transformers|accelerate|deepspeed|apex|numpy|pandas|PIL|tqdm|datasets)/|^<frozen "
)
MOST_FRAMES = 200  # deeper stacks are recursion: their line would not tell more


def is_user_line(name: str) -> bool:
    """Tell whether a frame such as ``train.py(12): step`` is the user's own code."""
    found = FRAME.match(name)
    if found is None or LIBRARY.search(name):
        return False
    top = found["file"].split("/")[0].removesuffix(".py")
    return top not in sys.stdlib_module_names or top == "profile"


def user_lines(recording: Recording, calls: Sequence[int]) -> dict[int, str]:
    """Return, by python_call_id, the innermost frame of the user's own code at or above it; calls without one are left out."""
    line: dict[int, str] = {}
    at = {int(call): int(call) for call in calls}
    for _ in range(MOST_FRAMES):
        if not at:
            break
        wanted = sorted(set(at.values()))
        known = {
            row[0]: row[1:]
            for row in recording.rows(
                "SELECT python_call_id, parent_id, name FROM python_calls JOIN names USING (name_id) "
                "WHERE python_call_id IN (SELECT unnest(?::BIGINT[]))",
                [wanted],
            )
        }
        following: dict[int, int] = {}
        for call, here in at.items():
            parent, name = known.get(here, (None, ""))
            if is_user_line(name):
                line[call] = name
            elif parent is not None:
                following[call] = int(parent)
        at = following
    return line
