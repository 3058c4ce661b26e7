"""Tests of the recorder's wheel, which is complete and runs without other packages."""

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sawtooth.installation import IMPORT_ROOT

OLDEST_PYTHON = (3, 10)
# Prints the imported top-level modules outside the standard library, and where sawtooth was imported from. Names that begin with "_"
# are left out, because the standard library's C modules are not in sys.stdlib_module_names.
PRINT_IMPORTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import sawtooth.capture, sawtooth.ingest.capture.commands, sawtooth.ingest.capture.command.hook
from sawtooth.capture import profile
names = {module.split(".")[0] for module in sys.modules}
others = names - set(sys.stdlib_module_names) - {"sawtooth", "__main__", "sitecustomize"}
print(json.dumps([sorted(name for name in others if not name.startswith("_")), sawtooth.__file__]))
"""


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorder")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    subprocess.run([*command, "--wheel-dir", str(folder), str(IMPORT_ROOT / "recorder")], check=True, timeout=300)
    (wheel,) = folder.glob("sawtooth_recorder-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_recorder_imports_only_the_standard_library(unpacked_wheel: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", PRINT_IMPORTS, str(unpacked_wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    others, file = json.loads(done.stdout)
    assert others == [] and str(unpacked_wheel) in file


def test_files_are_valid_python_3_10(unpacked_wheel: Path) -> None:
    files = sorted(unpacked_wheel.rglob("*.py"))
    assert len(files) > 25, "the wheel lacks files"
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST_PYTHON)


def test_help_and_version_name_the_recorder(unpacked_wheel: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sawtooth.ingest.capture.commands import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, str(unpacked_wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "This is only the recorder." in done.stdout
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    assert (version.returncode, version.stdout.split()[0]) == (0, "sawtooth-recorder")
