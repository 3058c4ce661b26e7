"""Keep experiment trackers offline in a trial, even if the script asks for a server.

Environment variables are enough for most trackers. WandB and MLflow prefer the script's arguments, and TensorBoard has no such variable, so
their functions are patched. Standard library only.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .saving import redirected

if TYPE_CHECKING:
    from .trial_state import TrialState

MLFLOW = "MLFLOW_TRACKING_URI"
TRACKERS = {
    "WANDB_MODE": "offline",
    "COMET_START_MODE": "offline",
    "COMET_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "offline",
    "SWANLAB_MODE": "offline",
    "DVCLIVE_TEST": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
FOLDER_VARIABLES = {  # The values are paths below the trial's folder.
    "WANDB_DIR": "wandb",
    MLFLOW: "mlruns",
    "COMET_OFFLINE_DIRECTORY": "comet",
}


def tracker_variables(folder: Path) -> dict[str, str]:
    """Return environment variables that keep trackers offline and put their files below ``folder``."""
    return {**TRACKERS, **{name: str(folder / path) for name, path in FOLDER_VARIABLES.items()}}


def _replace_argument(owner: Any, function: str, argument: str, value: Callable[[Any], Any], state: TrialState) -> None:
    """Patch ``owner.function`` so that ``argument`` becomes ``value(argument)``, unless the value is None."""
    original = getattr(owner, function)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def replaced(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return original(*arguments, **named)  # Raises the training's own error.
        bound.apply_defaults()
        replacement = state.call_safely(value, bound.arguments.get(argument))
        if replacement is not None:
            bound.arguments[argument] = replacement
        return original(*bound.args, **bound.kwargs)

    setattr(owner, function, replaced)


def _patch_wandb(module: ModuleType, state: TrialState) -> None:
    _replace_argument(module, "init", "mode", lambda mode: mode if mode == "disabled" else "offline", state)


def _patch_mlflow(module: ModuleType, state: TrialState) -> None:
    _replace_argument(module, "set_tracking_uri", "uri", lambda _: os.environ[MLFLOW], state)


def _patch_mlflow_client(module: ModuleType, state: TrialState) -> None:
    _replace_argument(module.MlflowClient, "__init__", "tracking_uri", lambda _: os.environ[MLFLOW], state)


def _patch_tensorboard(module: ModuleType, state: TrialState) -> None:
    name = next(name for name in ("log_dir", "logdir") if name in inspect.signature(module.FileWriter.__init__).parameters)
    _replace_argument(module.FileWriter, "__init__", name, lambda folder: redirected(folder, state), state)


PATCHES = {
    "wandb": _patch_wandb,
    "mlflow": _patch_mlflow,
    "mlflow.tracking.client": _patch_mlflow_client,
    "torch.utils.tensorboard.writer": _patch_tensorboard,
    "tensorboardX.writer": _patch_tensorboard,
}
