"""Runs inside a training that `sawtooth attach` records: loads the recorder there and has it attach or detach.

Its text is sent, with a last line that calls ``enter``, and is executed without a module around it. Whatever fails in here is answered in a file.
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any

PACKAGE = "_sawtooth_recorder"  # as `sawtooth run` calls it there: the training may have a `sawtooth` of its own


def enter(settings: dict[str, Any]) -> None:
    """Do what ``settings`` say (``attach/inside.py``), and write the answer into their file."""
    if settings["do"] == "attach" and not os.path.isdir(settings["folder"]):  # noqa: PTH112
        return  # it came too late: nobody waits for it
    try:
        if PACKAGE not in sys.modules:
            add_package(settings["root"])
        answer = importlib.import_module(PACKAGE + ".ingest.capture.attach.inside").obey(settings)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    part = settings["answer"] + ".part"
    with contextlib.suppress(OSError):
        with open(part, "w") as file:  # noqa: PTH123
            json.dump(answer, file)
        os.replace(part, settings["answer"])  # noqa: PTH105


def add_package(place: str) -> None:
    """Make the recorder's copy importable as PACKAGE, as ``command/startup/sitecustomize.py`` does where a training is started by `sawtooth run`."""
    folder = os.path.join(place, "sawtooth")  # noqa: PTH118
    installed = os.path.isdir(os.path.join(folder, "ingest"))  # noqa: PTH112, PTH118 - in a checkout it lies beside this folder
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [folder] if installed else [folder, place]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
