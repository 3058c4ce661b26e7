"""Tests that a training may use any module names, and ``sawtooth.capture``, under `sawtooth run`."""

import gzip
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest import children
from sawtooth.ingest.capture.in_process import shared
from tests.support.launches import WITHOUT_COMPILER

NAMES = ("sawtooth", "ingest", "app", "analysis", "recorder")
OWN_MODULE = """
class Rows:
    def __len__(self): return 300
    def __getitem__(self, index): return float(index)
"""
TRAINING = """
import sys, torch, sawtooth, ingest, app, analysis, recorder
from glob import glob
from multiprocessing import get_context
from os import environ
def rows_and_then_ones(loader):  # yields ones until a profile is taken
    yield from loader
    while not glob(environ["SAWTOOTH_RUN_FOLDER"] + "/trace-*.json"):
        yield torch.ones(1)
def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = torch.utils.data.DataLoader(sawtooth.Rows(), batch_size=1, num_workers=1, multiprocessing_context=get_context("spawn"))
    for row in rows_and_then_ones(loader):
        optimizer.zero_grad()
        model(row.float().reshape(1, 1)).sum().backward()
        optimizer.step()
    torch.save([own.Rows() for own in (sawtooth, ingest, app, analysis, recorder)], "rows.pt")
    print([type(rows).__module__ for rows in torch.load("rows.pt", weights_only=False)], sawtooth.__file__)
if __name__ == "__main__":
    main()
"""


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = children.command(
        "sawtooth.ingest.capture.commands", "run", "-o", "run.sawtooth", "--no-sample", "--after", "0.001"
    )
    return subprocess.run(
        [*command, *words], cwd=folder, env=children.environment(), capture_output=True, text=True, timeout=240
    )


def manifest_and_kinds(bundle: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(bundle) as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
        return run, {about["kind"]: gzip.decompress(archive.read(about["member"])) for about in run["recordings"]}


def test_a_training_keeps_modules_with_any_name(tmp_path: Path) -> None:
    for name in NAMES:
        path = tmp_path / name / "__init__.py" if name in ("ingest", "analysis") else tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(OWN_MODULE)
    (tmp_path / "train.py").write_text(WITHOUT_COMPILER + TRAINING)
    done = run(tmp_path, "--after", "0.001", "--steps", "2", "train.py")
    assert (done.returncode, done.stdout) == (0, f"{list(NAMES)} {tmp_path / 'sawtooth.py'}\n"), done.stderr
    about, kinds = manifest_and_kinds(tmp_path / "run.sawtooth")
    assert set(kinds) == {"trace", "marks"} and len(kinds["marks"].splitlines()) >= 301
    facts = about["facts"]
    assert (facts["loader_workers"], facts["loader_batch"]) == (
        1,
        1,
    )  # The spawned worker found the hook and the training's modules.
    assert facts["loader_sample_ms"] > 0


SELF_CAPTURING = """
{imports}
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
rows = [(float(i),) for i in range(200)]
saved = torch.save
with profile("own", sampler=False, skip=3, seconds=0.001, warmup=1, active=2, steps=60) as capture:
    patched = (torch.nn.Module.eval, torch.save, torch.utils.data._utils.fetch._MapDatasetFetcher.fetch)
    for row, in torch.utils.data.DataLoader(rows, batch_size=1):
        optimizer.zero_grad()
        model.train()(row.float().reshape(1, 1)).sum().backward()
        optimizer.step()
        if optimizer.state_dict() and capture._marked_steps == 30: model.eval()
        capture.step()
print([hasattr(function.__wrapped__, "__wrapped__") for function in patched], torch.save is saved)
print(sorted(name for name in sys.modules if name.endswith("capture.marks")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import sys, torch\nfrom sawtooth.capture import profile",
        "import sys\nfrom sawtooth.capture import profile\nimport torch",
    ],
)
def test_a_training_that_captures_itself_is_patched_once(tmp_path: Path, imports: str) -> None:
    # Each recorder has marks, which include the evaluation, and the times of batches.
    (tmp_path / "train.py").write_text(WITHOUT_COMPILER + SELF_CAPTURING.format(imports=imports))
    done = run(tmp_path, "--no-profile", "train.py")
    assert done.stdout.splitlines() == [
        "[False, False, False] True",
        "['_sawtooth_recorder.ingest.capture.marks', 'sawtooth.ingest.capture.marks']",
    ], done.stderr
    for bundle in ("run.sawtooth", "own.sawtooth"):
        about, kinds = manifest_and_kinds(tmp_path / bundle)
        phases = [json.loads(line)["p"] for line in kinds["marks"].splitlines()[1:]]
        assert phases.count("eval") == 1, bundle
        assert about["facts"]["loader_batch"] == 1, bundle


def test_a_function_is_patched_by_the_first_observer_and_restored_by_the_last() -> None:
    def original(x: int) -> int:
        return x + 1

    def patch(function, watchers):
        def patched(x):
            for watcher in watchers:
                watcher.append(x)
            return function(x)

        return patched

    owner = SimpleNamespace(function=original)
    first: list[int] = []
    second: list[int] = []
    leave_first = shared.watch(owner, "function", first, patch)
    leave_second = shared.watch(owner, "function", second, patch)
    assert owner.function(1) == 2 and owner.function.__wrapped__ is original
    leave_first()
    assert owner.function(2) == 3 and (first, second) == ([1], [1, 2])
    leave_second()
    leave_second()
    assert owner.function is original
    leave = shared.watch(owner, "function", first, patch)
    other = owner.function = lambda x: original(x)
    leave()
    assert owner.function is other, "a later patch by someone else stays"


def test_shared_objects_exist_once_under_all_import_names() -> None:
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('other', {shared.__file__!r})\n"
        "other = importlib.util.module_from_spec(spec); spec.loader.exec_module(other)\n"
        "from sawtooth.ingest.capture.in_process.shared import process_wide\n"
        "print(process_wide('x', list) is other.process_wide('x', list) is not process_wide('y', list))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=children.environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
