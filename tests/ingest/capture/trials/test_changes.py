"""Tests of the changes that `sawtooth try` makes in a training, and of the guard of files."""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, dataloader

from sawtooth.ingest.capture.command.launch import hooked_environment
from sawtooth.ingest.capture.trials import files
from sawtooth.ingest.capture.trials.changes import environment, loader, outermost
from sawtooth.ingest.capture.trials.notes import Notes
from sawtooth.ingest.capture.trials.settings import STOPPED_BY_GUARD, TRIAL, TrialSettings
from sawtooth.ingest.capture.trials.trial_state import TrialState

TRAINING = """
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 1)))
optimizer = torch.optim.Adam(model.parameters())
torch.autograd.set_detect_anomaly(True)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(48, 4, 8, 8)), batch_size=4):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "new.pt")
print(loss.dtype, torch.is_anomaly_enabled(), len(torch.load("new.pt")), os.path.exists("new.pt"), epoch, flush=True)
with open("old.txt", "a") as file:
    file.write("changed")
"""
HANGS_S = 100.0
WANTED: dict[str, dict[str, Any]] = {
    "loader-workers": {"workers": 2},
    "persistent-workers": {},
    "prefetch-factor": {"factor": 3},
    "batch-size": {"times": 2.0},
    "fused-optimizer": {},
    "ddp-bucket-size": {"mb": 3.0},
    "ddp-gradient-views": {},
    "ddp-static-graph": {},
    "anomaly-detection-off": {},
    "gc-frozen": {},
    "gc-every-n-steps": {"steps": 5},
    "omp-threads": {"threads": 1},
    "channels-last": {},
    "bf16-autocast": {},
}


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Return a temporary folder with a short path.

    The sockets of a loader's workers need paths of at most 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield folder


def test_every_change_is_proven_and_an_existing_file_stays(tmp_path: Path, short_folder: str) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "old.txt").write_text("old")
    about = (tmp_path / "old.txt").stat()
    # The file is older than the session. The folder of temporary files is exempt from the guard, and this test works below the usual one.
    settings = TrialSettings(str(tmp_path / "saves"), {**WANTED, "tf32": {}}, began_s=about.st_ctime + 1e-3, losses=True)
    variables = {
        **hooked_environment(parts, {}),
        **environment.variables(WANTED, {}),
        TRIAL: settings.variable(),
        "TMPDIR": short_folder,
    }
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == STOPPED_BY_GUARD, done.stderr
    # The training sees a float32 loss, no anomaly detection, and the checkpoint that is not in its folder.
    assert done.stdout == "torch.float32 False 4 False 1\n"
    assert (tmp_path / "old.txt").read_text() == "old" and not (tmp_path / "new.pt").exists()
    (notes,) = (json.loads(path.read_text()) for path in parts.glob("trial-*.json") if b'"model"' in path.read_bytes())
    assert notes["errors"] == []
    assert set(notes["proofs"]) == set(WANTED)
    assert notes["proofs"]["loader-workers"] == "2 worker processes of the loader were alive."
    assert notes["proofs"]["batch-size"] == "The loader makes batches of 8 samples."
    assert notes["files"] == [{"path": str(tmp_path / "old.txt"), "how": "open"}]
    assert list(notes["refused"]) == ["tf32"], "only tf32 needs a GPU"
    assert notes["seen"]["anomaly"] and notes["seen"]["ddp"] == [{"bucket_mb": 3.0, "views": True, "static": True}]


class _Holds(Dataset[int]):
    def __init__(self, value: object) -> None:
        self.parts = [{"value": value}]

    def __getitem__(self, index: int) -> int:
        return index


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([1])


@pytest.mark.parametrize(
    ("dataset", "method", "why"),
    [
        (_Stream(), "fork", loader.ITERABLE),
        (_Holds(io.FileIO(os.devnull)), "fork", loader.HANDLES.format(kind="_io.FileIO")),
        (_Holds(1), "spawn", loader.NO_GUARD),
        (_Holds(torch.ones(3)), "fork", None),
    ],
)
def test_workers_are_refused_if_they_would_be_harmful(
    dataset: Any, method: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("train()")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "train.py"), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert loader.refusal(dataloader, {"dataset": dataset, "multiprocessing_context": method}) == why


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("gpu", [True, False])
def test_a_loader_without_workers_proves_that_it_pins(gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(lambda: tmp_path / "notes.json")
    state = TrialState(TrialSettings("", {"pin-memory": {}}), notes, files.Guard(TrialSettings(""), notes))
    for owner in (dataloader.DataLoader, dataloader._BaseDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
        monkeypatch.setattr(owner, "__init__", owner.__init__)  # monkeypatch restores it after the patch.
    loader.PATCHES["torch.utils.data.dataloader"](dataloader, state)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpu)
    iter(dataloader.DataLoader([1, 2]))
    assert notes.content["errors"] == [] and notes.content["seen"]["loader"][0]["pinned"]
    assert list(notes.content["proofs"]) == ["pin-memory"] * gpu


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def test_a_container_of_layers_is_compiled_as_one_graph(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # Other tests in this process compile too.
    settings = TrialSettings(str(tmp_path), {"compile": {"backend": "eager"}}, guards=False)
    state = TrialState(
        settings, Notes(lambda: tmp_path / "notes.json"), files.Guard(settings, Notes(lambda: tmp_path / "n.json"))
    )
    original = torch.nn.Module.__call__
    model = torch.nn.Sequential(_Layer(), _Layer(), torch.nn.Linear(4, 1))
    try:
        outermost.PATCHES["torch.nn.modules.module"](torch.nn.modules.module, state)
        for _ in range(8):
            model(torch.ones(2, 4)).sum().backward()
            state.step()
        assert state.notes.content["errors"] == []
        assert state.notes.content["proofs"] == {"compile": "Dynamo compiled 1 graph."}
        assert torch.nn.Module.__call__ is original
    finally:
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]
        torch._dynamo.reset()
