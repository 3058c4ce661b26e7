"""Script that `sawtooth attach` runs inside a training to load the recorder and attach or detach it.

The sent text is this file and a last line that calls ``enter``. Python executes the text outside any module.
Errors are written into the answer file.
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any

PACKAGE = "_sawtooth_recorder"  # As in `sawtooth run`; the training may have a package `sawtooth` of its own.


def enter(settings: dict[str, Any]) -> None:
    """Run the request in ``settings`` (see ``attach/inside.py``), and write the answer file."""
    if settings["do"] == "attach" and not os.path.isdir(settings["folder"]):  # noqa: PTH112
        return  # The recording has already ended.
    try:
        if PACKAGE not in sys.modules:
            add_package(settings["root"])
        answer = importlib.import_module(PACKAGE + ".ingest.capture.attach.inside").answer_request(settings)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    part = settings["answer"] + ".part"
    with contextlib.suppress(OSError):
        with open(part, "w") as file:  # noqa: PTH123
            json.dump(answer, file)
        os.replace(part, settings["answer"])  # noqa: PTH105


def add_package(place: str) -> None:
    """Make the recorder importable as PACKAGE.

    ``command/startup/sitecustomize.py`` does the same for trainings that `sawtooth run` starts.
    """
    folder = os.path.join(place, "sawtooth")  # noqa: PTH118
    installed = os.path.isdir(os.path.join(folder, "ingest"))  # noqa: PTH112, PTH118 - In a checkout, ``ingest`` is next to this folder.
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [folder] if installed else [folder, place]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
