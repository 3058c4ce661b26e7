"""Startup module of every Python that `sawtooth run` starts: it waits for PyTorch and then hooks it.

Python finds it by its name on PYTHONPATH. It uses only the standard library and prints nothing. An error in here never stops the training.
It hides the environment's own ``sitecustomize`` and therefore runs that one afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost every child its import
PACKAGE = "_sawtooth_recorder"  # a private name, because the training may have a `sawtooth` of its own
HOOK = f"{PACKAGE}.ingest.capture.command.hook"
AWAITED = {  # modules of PyTorch and DeepSpeed, and what of the hook is called with each once it is there
    "torch.optim.optimizer": "install",
    "torch.nn.modules.module": "watch_evaluation",
    "torch.serialization": "watch_saving",
    "torch.cuda.graphs": "watch_graphs",
    "torch.autograd.profiler": "watch_profilers",
    "torch.autograd.profiler_legacy": "watch_profilers",
    "torch.profiler.profiler": "watch_exports",
    "deepspeed.runtime.engine": "watch_updates",
    "torch.utils.data.dataloader": "watch_batches",
    "torch.utils.data._utils.fetch": "watch_loaders",
    "torch.utils.data._utils.pin_memory": "watch_pinning",
}


TRIED: dict[str, Callable[[ModuleType], None]] = {}  # of `sawtooth try`, what is called with a module once it is there


def _add_package(place: str) -> None:
    """Make this copy of Sawtooth importable as PACKAGE, without reading from the disk yet.

    This works because its modules import each other relatively.
    """
    folder = os.path.join(place, "sawtooth")  # noqa: PTH118
    installed = os.path.isdir(os.path.join(folder, "ingest"))  # noqa: PTH112, PTH118 - in a checkout it lies beside this folder
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [folder] if installed else [folder, place]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


class _Loader(importlib.abc.Loader):
    """Loader that loads an awaited module as usual and then hooks it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module with the original loader."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with the original loader, then hook it."""
        self.loader.exec_module(module)
        try:
            if module.__name__ in AWAITED:
                getattr(importlib.import_module(HOOK), AWAITED[module.__name__])(module)
            if module.__name__ in TRIED:
                TRIED[module.__name__](module)
        except Exception as error:
            if os.environ.get("SAWTOOTH_DEBUG"):
                print(f"sawtooth: the training is not hooked ({error!r})", file=sys.stderr)


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that recognises imports of PyTorch's optimizers, modules and loaders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an awaited module with our loader around its own."""
        if name not in AWAITED and name not in TRIED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _say_that_it_is_loaded() -> None:
    """Create an empty file that shows `sawtooth run` that a Python of its command ran this module."""
    path = os.path.join(os.environ["SAWTOOTH_RUN_FOLDER"], "loaded")  # noqa: PTH118
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _begin_trial() -> None:
    """Guard the training's files and make a trial's changes, where `sawtooth try` started this Python."""
    try:
        TRIED.update(importlib.import_module(f"{PACKAGE}.ingest.capture.trials.inside").begin())
    except Exception as error:
        if os.environ.get("SAWTOOTH_DEBUG"):
            print(f"sawtooth: the trial did not begin ({error!r})", file=sys.stderr)


def _run_the_hidden_one() -> None:
    """Run the environment's own ``sitecustomize``, which this one hides."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# Another copy has done it where one `sawtooth run` starts another.
if os.environ.get("SAWTOOTH_RUN_FOLDER") and os.environ.get("SAWTOOTH_IMPORT_ROOT") and PACKAGE not in sys.modules:
    _add_package(os.environ["SAWTOOTH_IMPORT_ROOT"])
    sys.meta_path.insert(0, _Finder())
    _say_that_it_is_loaded()
    if os.environ.get("SAWTOOTH_TRY"):
        _begin_trial()
_run_the_hidden_one()
