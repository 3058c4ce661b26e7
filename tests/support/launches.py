"""Trainings that `sawtooth run` starts and records, and the content of their bundles."""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
import zipfile
from pathlib import Path

from sawtooth.ingest import children

# It trains for ``--epochs`` steps, and then until the recorder has made ``--profiles`` profiles.
TRAINING = """
import argparse, glob, os, sys, torch
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--profiles", type=int, default=0)
parser.add_argument("--code", type=int, default=0)
options = parser.parse_args()
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
profiles = os.path.join(os.environ.get("SAWTOOTH_RUN_FOLDER", ""), "trace-*.json")
step = 0
while step < options.epochs or len(glob.glob(profiles)) < options.profiles:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    step += 1
print("trained", step)
sys.exit(options.code)
"""
# Stand-ins for the compiler. An optimizer imports it only to exclude itself from compilation, which takes longer than the import of all
# other parts of PyTorch. A profile reads one of its settings.
WITHOUT_COMPILER = """
import sys, types
compiler, inductor, config = map(types.ModuleType, ("torch._dynamo", "torch._inductor", "torch._inductor.config"))
compiler.disable, compiler.graph_break = lambda function, *_, **__: function, lambda *_, **__: None
inductor.config, config.triton = config, types.SimpleNamespace(cudagraphs=False)
sys.modules.update({module.__name__: module for module in (compiler, inductor, config)})
"""


def started(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `sawtooth run` with ``words`` in the folder ``cwd``."""
    command = children.command("sawtooth.ingest.capture.commands", "run", *words)
    # The usual folder has files of killed runs of other tests. The path must be short, because a loader's socket allows 107 bytes.
    with tempfile.TemporaryDirectory(prefix="parts-") as parts:
        environment = children.environment() | {"TMPDIR": parts}
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280)


def members(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
        return {about["kind"]: gzip.decompress(archive.read(about["member"])) for about in run["recordings"]}


def marks_of(bundle: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in members(bundle)["marks"].splitlines()[1:]]


def facts_of(bundle: Path) -> dict[str, float]:
    with zipfile.ZipFile(bundle) as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
    return dict(run.get("facts", {}))
