"""Callbacks for Lightning and Hugging Face that record a training with ``profile``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.recorder import profile


def lightning_callback(path: str | Path, **options: Any) -> Any:
    """Return a callback for Lightning's Trainer; the options are those of ``profile``.

    Use it as ``Trainer(callbacks=[lightning_callback("run.sawtooth")])``.
    """
    base = _callback_class((("lightning.pytorch", "Callback"), ("pytorch_lightning", "Callback")))

    class SawtoothCapture(base):  # type: ignore[misc, valid-type]  # The base class is known only at run time.
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.capture = profile(path, **{"parameters": pl_module, "steps": _planned_steps(trainer), **options})
            self.capture.__enter__()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any, **more: Any) -> None:
            self.capture.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.capture.__exit__(None, None, None)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if hasattr(self, "capture"):
                self.capture.__exit__(type(exception), exception, None)

    return SawtoothCapture()


def hugging_face_callback(path: str | Path, **options: Any) -> Any:
    """Return a callback for Hugging Face's Trainer; the options are those of ``profile``.

    Use it as ``Trainer(callbacks=[hugging_face_callback("run.sawtooth")])``.
    """
    base = _callback_class((("transformers", "TrainerCallback"),))

    class SawtoothCapture(base):  # type: ignore[misc, valid-type]  # The base class is known only at run time.
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
            self.capture = profile(
                path,
                **{
                    "parameters": model,
                    "samples": _samples_per_step(args),
                    "steps": getattr(state, "max_steps", None),
                    **options,
                },
            )
            self.capture.__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.capture.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.capture.__exit__(None, None, None)

    return SawtoothCapture()


def _planned_steps(trainer: Any) -> int | None:
    """Return the number of batches that Lightning will train on; None if unknown."""
    batches, epochs = getattr(trainer, "num_training_batches", None), getattr(trainer, "max_epochs", None)
    steps = batches * epochs if batches and epochs and epochs > 0 else 0
    return int(steps) if 0 < steps < float("inf") else None


def _samples_per_step(args: Any) -> float | None:
    size = getattr(args, "per_device_train_batch_size", None)
    return float(size) * float(getattr(args, "gradient_accumulation_steps", 1) or 1) if size else None


def _callback_class(names: tuple[tuple[str, str], ...]) -> type:
    """Return the first class of ``names`` (module, class) that can be imported, else ``object``."""
    for module, name in names:
        try:
            base: type = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        return base
    return object
