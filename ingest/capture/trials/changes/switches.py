"""Changes of PyTorch's global settings: anomaly detection, cuDNN, determinism, TF32, attention.

The settings are changed after the first step, because scripts choose settings at their start. The settings that PyTorch reports after the
third step prove the changes. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..trial_state import TrialState

ANOMALY, CUDNN_BENCHMARK, DETERMINISTIC_OFF, TF32, ATTENTION = (
    "anomaly-detection-off",
    "cudnn-benchmark",
    "deterministic-off",
    "tf32",
    "attention-backends",
)
SET_AFTER_STEPS, CHECKED_AFTER_STEPS = 1, 3  # Settings are changed and checked after these steps.
TF32_SINCE = 8  # The first GPUs with TF32 have this major compute capability.
NO_TF32 = "This device has no TF32."
ATTENTION_KERNELS = ("flash", "mem_efficient", "cudnn")


def _schedule(module: ModuleType, state: TrialState) -> None:
    """Set and prove the settings after their steps; ``module`` is torch.optim.optimizer."""
    state.after_step(SET_AFTER_STEPS, lambda: _set(state))
    state.after_step(CHECKED_AFTER_STEPS, lambda: _prove(state))


def _set(state: TrialState) -> None:
    torch = sys.modules["torch"]
    state.notes.note_seen("settings", **_settings(torch))
    if state.requested(CUDNN_BENCHMARK) is not None:
        torch.backends.cudnn.benchmark = True
    if state.requested(DETERMINISTIC_OFF) is not None:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.deterministic = False
    if state.requested(TF32) is not None:
        if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < TF32_SINCE:
            state.notes.note_refusal(TF32, NO_TF32)
        else:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
    if state.requested(ATTENTION) is not None:
        for kernel in ATTENTION_KERNELS:
            getattr(torch.backends.cuda, f"enable_{kernel}_sdp", lambda _: None)(True)


def _settings(torch: Any) -> dict[str, Any]:
    return {
        "cuda": torch.cuda.is_available(),
        "search": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic,
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "attention": [kernel for kernel in ATTENTION_KERNELS if _enabled(torch, kernel)],
    }


def _enabled(torch: Any, kernel: str) -> bool:
    return bool(getattr(torch.backends.cuda, f"{kernel}_sdp_enabled", lambda: True)())


def _prove(state: TrialState) -> None:
    settings = _settings(sys.modules["torch"])
    facts: tuple[tuple[str, bool, str], ...] = (
        (CUDNN_BENCHMARK, settings["search"] and settings["cuda"], "torch.backends.cudnn.benchmark is True after three steps."),
        (DETERMINISTIC_OFF, not settings["deterministic"], "Deterministic algorithms are off after three steps."),
        (
            TF32,
            settings["precision"] == "high" and settings["cuda"],
            "The float32 matmul precision is 'high' after three steps.",
        ),
        (
            ATTENTION,
            len(settings["attention"]) == len(ATTENTION_KERNELS),
            "All attention backends are enabled after three steps.",
        ),
    )
    for slug, is_set, proof in facts:
        if state.requested(slug) is not None and is_set:
            state.notes.note_proof(slug, proof)


def _patch_anomaly_detection(module: ModuleType, state: TrialState) -> None:
    """Turn off anomaly detection, however it is turned on; ``module`` is torch.autograd.anomaly_mode."""

    def patch(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def enter(context: Any, /, *arguments: Any, **named: Any) -> Any:
            result = original(context, *arguments, **named)
            state.call_safely(_turn_anomaly_off, state)
            return result

        setattr(owner, name, enter)

    patch(module.set_detect_anomaly, "__init__")
    patch(module.detect_anomaly, "__enter__")


def _turn_anomaly_off(state: TrialState) -> None:
    torch = sys.modules["torch"]
    if not torch.is_anomaly_enabled():
        return
    state.notes.note_seen("anomaly", enabled=True)
    if state.requested(ANOMALY) is not None:
        torch.set_anomaly_enabled(False)
        if not torch.is_anomaly_enabled():
            state.notes.note_proof(ANOMALY, "Anomaly detection is off, although the script enabled it.")


PATCHES = {"torch.optim.optimizer": _schedule, "torch.autograd.anomaly_mode": _patch_anomaly_detection}
