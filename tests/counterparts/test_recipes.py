"""Tests of the guide's recipes for jobs, each with its own launcher, on the CPU.

pip install accelerate ray && python -m pytest -m slow tests/counterparts/test_recipes.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
LOOP = """
import time, torch
weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(200):
    weight.grad = torch.ones(8)
    optimizer.step()
    time.sleep(0.02)
"""
ACCELERATE = """
import time, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 1
model = torch.nn.Linear(8, 8)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(200):
    accelerator.backward(model(torch.ones(4, 8)).sum())
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""

RAY = """
import os, sys, time, torch, ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from sawtooth.capture import profile
def loop(config):
    model = prepare_model(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(config["file"], steps=60) as capture:
        for _ in range(60):
            optimizer.zero_grad()
            model(torch.ones(16, 64)).sum().backward()
            optimizer.step()
            capture.step()
            time.sleep(0.01)
ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
workers = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
TorchTrainer(loop, train_loop_config={"file": sys.argv[1]}, scaling_config=workers).fit()
"""


def start(folder: Path, output: Path, script: str, *launcher: str, **variables: str) -> subprocess.Popen[bytes]:
    (folder / "train.py").write_text(script)
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT), "SAWTOOTH_DATA": str(folder / "data"), **variables}
    options = ["--after", "1", "--no-sample", "-o", str(output)]
    command = [sys.executable, "-m", "sawtooth", "run", *options, *launcher, "train.py"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def recorded(file: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(file) as archive:
        runs = json.loads(archive.read("manifest.json"))["runs"]
    return [recording for run in runs for recording in run["recordings"]]


def test_a_training_of_accelerate_is_recorded(tmp_path: Path) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("pip install accelerate")
    assert start(tmp_path, tmp_path / "run.sawtooth", ACCELERATE, "accelerate", "launch", "--cpu").wait(200) == 0
    assert {"trace", "marks"} <= {item["kind"] for item in recorded(tmp_path / "run.sawtooth")}


def test_each_worker_of_ray_train_writes_its_own_file(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("pip install ray")
    (tmp_path / "train.py").write_text(RAY)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "train.py", str(tmp_path / "run.sawtooth")]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300)
    files = sorted(tmp_path.glob("*.sawtooth"))
    assert [file.name for file in files] == ["run-rank0.sawtooth", "run-rank1.sawtooth"]
    assert all({"trace", "marks"} <= {item["kind"] for item in recorded(file)} for file in files)


def test_each_task_of_slurm_writes_its_own_file(tmp_path: Path) -> None:
    """The command is ``srun sawtooth run -o run.sawtooth python train.py``.

    Each task has Slurm's variables, and all are given the same file name.
    """
    output = tmp_path / "run.sawtooth"
    tasks = [
        start(
            tmp_path,
            output,
            LOOP,
            sys.executable,
            SLURM_JOB_ID="7",
            SLURM_PROCID=str(i),
            SLURM_LOCALID=str(i),
            SLURM_NTASKS="2",
        )
        for i in range(2)
    ]
    assert [task.wait(200) for task in tasks] == [0, 0]
    files = sorted(tmp_path.glob("*.sawtooth"))
    assert len(files) == 2, files
    assert all("trace" in {item["kind"] for item in recorded(file)} for file in files)
