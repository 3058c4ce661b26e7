"""Import hook of `sawtooth run`: patches modules of PyTorch and DeepSpeed after they are imported.

Python imports a module of this name at its start, and `sawtooth run` puts this folder on PYTHONPATH. This module prints nothing unless
SAWTOOTH_DEBUG is set, and its errors never stop the training. It shadows the environment's own ``sitecustomize``, and therefore runs the
shadowed module at the end. Standard library only.
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

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - importing pathlib would slow every child process
PACKAGE = "_sawtooth_recorder"  # The name is private, because the training may have a package `sawtooth` of its own.
HOOK = f"{PACKAGE}.ingest.capture.command.hook"
# For each module of PyTorch or DeepSpeed, the function of HOOK that is called with the module after the import.
PATCHES = {
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
    "torch._dynamo.trace_rules": "leave_out_recorder",
}
TRIAL_PATCHES: dict[str, Callable[[ModuleType], None]] = {}  # `sawtooth try` adds functions to call after a module's import.


def _add_package(import_root: str) -> None:
    """Make this copy of Sawtooth importable as PACKAGE, without importing any module yet.

    The modules can have another package name because they import each other relatively.
    """
    folder = os.path.join(import_root, "sawtooth")  # noqa: PTH118
    # In an installation, ingest/ is in sawtooth/. In a checkout, ingest/ is next to sawtooth/.
    installed = os.path.isdir(os.path.join(folder, "ingest"))  # noqa: PTH112, PTH118
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [folder] if installed else [folder, import_root]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


class _Loader(importlib.abc.Loader):
    """Loader that executes a module with its original loader and then patches it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its original loader, and patch the module."""
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        try:
            if module.__name__ in PATCHES:
                getattr(importlib.import_module(HOOK), PATCHES[module.__name__])(module)
            if module.__name__ in TRIAL_PATCHES:
                TRIAL_PATCHES[module.__name__](module)
        except Exception as error:
            if os.environ.get("SAWTOOTH_DEBUG"):
                print(f"sawtooth: could not patch {module.__name__} ({error!r})", file=sys.stderr)


class _Finder(importlib.abc.MetaPathFinder):
    """Finder for the modules in PATCHES and TRIAL_PATCHES."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module to patch, with a ``_Loader``; None for other modules."""
        if name not in PATCHES and name not in TRIAL_PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _touch_loaded_marker() -> None:
    """Create an empty file. It tells `sawtooth run` that a Python of the command ran this module."""
    path = os.path.join(os.environ["SAWTOOTH_RUN_FOLDER"], "loaded")  # noqa: PTH118
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _begin_trial() -> None:
    """Under `sawtooth try`, protect the training's existing files and apply the trial's changes."""
    try:
        TRIAL_PATCHES.update(importlib.import_module(f"{PACKAGE}.ingest.capture.trials.trial_state").begin())
    except Exception as error:
        if os.environ.get("SAWTOOTH_DEBUG"):
            print(f"sawtooth: the trial did not begin ({error!r})", file=sys.stderr)


def _run_shadowed_sitecustomize() -> None:
    """Run the environment's own ``sitecustomize``, which this module shadows."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# In nested `sawtooth run` commands, another copy of this module may have added the package already.
if os.environ.get("SAWTOOTH_RUN_FOLDER") and os.environ.get("SAWTOOTH_IMPORT_ROOT") and PACKAGE not in sys.modules:
    _add_package(os.environ["SAWTOOTH_IMPORT_ROOT"])
    sys.meta_path.insert(0, _Finder())
    _touch_loaded_marker()
    if os.environ.get("SAWTOOTH_TRY"):
        _begin_trial()
_run_shadowed_sitecustomize()
