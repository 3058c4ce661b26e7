"""Tests of the capture helper's callbacks for Lightning and Hugging Face."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from sawtooth.ingest.capture.callbacks import hugging_face_callback, lightning_callback
from sawtooth.ingest.runs.bundle_file import open_bundle
from tests.support.captured_loops import SteppingClock


def test_lightning(tmp_path: Path, stepping_clock: SteppingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("lightning"), ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    callback = lightning_callback(tmp_path / "l", seconds=0.1)
    assert isinstance(callback, module.Callback)
    callback.on_train_start(SimpleNamespace(num_training_batches=50, max_epochs=2), torch.nn.Linear(2, 2))
    assert callback.capture._plan.latest_start == 100 - 3 - 5 - 5
    for index in range(100):
        stepping_clock.ns += 20_000_000
        callback.on_train_batch_end(None, None, None, None, index)
    callback.on_train_end(None, None)
    assert (tmp_path / "l.sawtooth").exists()
    with open_bundle(tmp_path / "l.sawtooth") as bundle:
        assert bundle.manifest.runs[0].facts.parameters == 6


def test_hugging_face(tmp_path: Path, stepping_clock: SteppingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    callback = hugging_face_callback(tmp_path / "h", seconds=0.1)
    assert isinstance(callback, module.TrainerCallback)
    args: Any = SimpleNamespace(per_device_train_batch_size=8, gradient_accumulation_steps=4)
    callback.on_train_begin(args, SimpleNamespace(max_steps=100), None, model=torch.nn.Linear(2, 2))
    assert callback.capture._plan.latest_start == 100 - 3 - 5 - 5
    for _ in range(100):
        stepping_clock.ns += 20_000_000
        callback.on_step_end(args, None, None)
    callback.on_train_end(args, None, None)
    with open_bundle(tmp_path / "h.sawtooth") as bundle:
        assert bundle.manifest.runs[0].facts.samples_per_step == 32


def test_without_the_frameworks_the_callbacks_are_plain_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert hasattr(lightning_callback("x"), "on_train_batch_end") and hasattr(hugging_face_callback("x"), "on_step_end")
