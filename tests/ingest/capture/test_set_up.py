"""Tests of a profile's set-up: versions and the environment variables that affect speed only."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from sawtooth.ingest.capture.in_process.set_up import MAX_CHARACTERS, SET_UP_KEY, variables
from sawtooth.ingest.capture.profiler import StepProfiler


def test_only_known_variables_with_a_value_are_recorded() -> None:
    environment = {
        "OMP_NUM_THREADS": "4",
        "NCCL_ALGO": "Ring",
        "CUDA_LAUNCH_BLOCKING": "",
        "WANDB_API_KEY": "secret",
        "HOME": "/home/a",
        "TRITON_CACHE_DIR": "x" * 999,
    }
    assert variables(environment) == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4", "TRITON_CACHE_DIR": "x" * MAX_CHARACTERS}


def test_a_profile_contains_the_set_variables(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    StepProfiler(torch, tmp_path / "trace.json").stop()
    text = (tmp_path / "trace.json").read_text()
    set_up = json.loads(text)[SET_UP_KEY]
    assert set_up["torch"] == str(torch.__version__)
    assert set_up["environment"]["OMP_NUM_THREADS"] == "1"
    assert "WANDB_API_KEY" not in text
