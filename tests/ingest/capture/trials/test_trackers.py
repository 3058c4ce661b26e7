"""Tests of trackers in a trial, which use neither the script's server nor its folder."""

import os
import subprocess
import sys
from pathlib import Path

from sawtooth.ingest.capture.command.launch import hooked_environment
from sawtooth.ingest.capture.trials.settings import TRIAL, TrialSettings
from sawtooth.ingest.capture.trials.trackers import tracker_variables

# Fake trackers with the signatures that the patches use.
PACKAGES = {
    "wandb/__init__.py": "def init(entity=None, project=None, dir=None, mode=None, **others):\n    return mode\n",
    "mlflow/__init__.py": "def set_tracking_uri(uri):\n    print(uri)\n",
    "mlflow/tracking/__init__.py": "",
    "mlflow/tracking/client.py": "class MlflowClient:\n    def __init__(self, tracking_uri=None, registry_uri=None):\n        print(tracking_uri)\n",
    "tensorboardX/__init__.py": "",
    "tensorboardX/writer.py": "class FileWriter:\n    def __init__(self, logdir, max_queue=10):\n        print(logdir, max_queue)\n",
}
SCRIPT = """
import mlflow, wandb
from mlflow.tracking.client import MlflowClient
from tensorboardX.writer import FileWriter
print(wandb.init(project="mine", mode="online"), wandb.init("us"), wandb.init(mode="disabled"))
mlflow.set_tracking_uri("https://mlflow.example.org")
MlflowClient("https://mlflow.example.org")
FileWriter("runs", max_queue=3)
"""


def test_a_script_that_names_a_server_or_a_folder_stays_offline(tmp_path: Path) -> None:
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    parts, saves = tmp_path / "parts", tmp_path / "saves"
    parts.mkdir()
    variables = {
        **hooked_environment(parts, {}),
        **tracker_variables(tmp_path / "trial"),
        TRIAL: TrialSettings(str(saves), guards=False).variable(),
    }
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    trial_folder = os.fspath(tmp_path / "trial" / "mlruns")
    assert done.stdout.splitlines() == [
        "offline offline disabled",
        trial_folder,
        trial_folder,
        f"{saves}{tmp_path / 'runs'} 3",
    ], done.stderr
