"""Tests of `sawtooth run` on the trainers of other frameworks.

Each test needs its framework: pip install transformers accelerate lightning.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import zipfile
from importlib import util
from pathlib import Path

import pytest

from sawtooth.ingest import children

HUGGING_FACE = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=32, vocab_size=100)
class Sentences(torch.utils.data.Dataset):
    def __len__(self): return 4096
    def __getitem__(self, i): return {"input_ids": torch.randint(0, 100, (8,)), "labels": torch.tensor(i % 2)}
wanted = TrainingArguments("out", max_steps=int(sys.argv[1]), per_device_train_batch_size=4, use_cpu=True, save_strategy="no", report_to=[])
Trainer(BertForSequenceClassification(config), wanted, train_dataset=Sentences()).train()
"""
LIGHTNING = """
import sys, torch, lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 2)
    def training_step(self, batch, _): return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.TensorDataset(torch.randn(4096, 16), torch.randint(0, 2, (4096,)))
lightning.Trainer(max_steps=int(sys.argv[1]), accelerator="cpu", logger=False, enable_checkpointing=False).fit(
    Net(), torch.utils.data.DataLoader(data, batch_size=4))
"""


@pytest.mark.parametrize(("framework", "script"), [("transformers", HUGGING_FACE), ("lightning", LIGHTNING)])
def test_marks_and_profile_need_no_change_to_the_script(tmp_path: Path, framework: str, script: str) -> None:
    if util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    (tmp_path / "train.py").write_text(script)
    words = ("run", "-o", "run.sawtooth", "--no-sample", "--after", "0.001", "--steps", "3", "train.py", "60")
    command = children.command("sawtooth.ingest.capture.commands", *words)
    done = subprocess.run(command, cwd=tmp_path, env=children.environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "run.sawtooth") as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
        recorded = {about["kind"]: gzip.decompress(archive.read(about["member"])) for about in run["recordings"]}
    marks = [json.loads(line) for line in recorded["marks"].splitlines()[1:]]
    assert [mark["i"] for mark in marks] == list(range(60))
    assert b"Optimizer.step#AdamW.step" in recorded["trace"]
