"""Tests of the GPU ids that a training process writes, by which telemetry is matched."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sawtooth.ingest.capture.devices import UUIDS_KEY, current_gpu, gpu_uuids, name_gpus
from sawtooth.ingest.capture.marks import MarkWriter


def torch_with(uuids: list[Any], *, used: bool = True, current: int = 0) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: used,
            device_count=lambda: len(uuids),
            current_device=lambda: current,
            get_device_properties=lambda i: SimpleNamespace(**({} if uuids[i] is None else {"uuid": uuids[i]})),
        )
    )


def test_uuids_have_the_form_of_nvml() -> None:
    assert gpu_uuids(torch_with(["ea8d", "MIG-7f"])) == {"0": "GPU-ea8d", "1": "MIG-7f"}
    assert current_gpu(torch_with(["ea8d", "MIG-7f"], current=1)) == "MIG-7f"


def test_a_process_without_gpu_or_with_old_pytorch_has_no_uuids() -> None:
    assert gpu_uuids(torch_with(["ea8d"], used=False)) == {}  # A query would start CUDA in a process that may still fork.
    assert gpu_uuids(torch_with([None])) == {}
    assert gpu_uuids(None) == {}
    assert current_gpu(None) is None


def test_uuids_are_added_to_the_trace_if_the_profiler_accepts_them() -> None:
    metadata: dict[str, str] = {}
    name_gpus(SimpleNamespace(add_metadata_json=metadata.__setitem__), torch_with(["ea8d"]))
    assert json.loads(metadata[UUIDS_KEY]) == {"0": "GPU-ea8d"}
    name_gpus(object(), torch_with(["ea8d"]))


def test_marks_begin_with_the_gpu(tmp_path: Path) -> None:
    marks = MarkWriter(tmp_path / "marks.jsonl", rank=3, gpu="GPU-ea8d")
    marks.close()
    assert json.loads((tmp_path / "marks.jsonl").read_text())["gpu"] == "GPU-ea8d"
