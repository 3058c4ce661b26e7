"""The recorder as a distribution of its own: what is in it is enough, and runs where nothing else is installed."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sawtooth.installation import IMPORT_ROOT

OLDEST = (3, 10)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder's wheel, unpacked."""
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


def test_it_needs_nothing_but_the_standard_library_to_start(unpacked: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import sawtooth.capture, sawtooth.ingest.capture.commands, sawtooth.ingest.capture.command.hook\n"
        "from sawtooth.capture import profile\n"
        "others = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'sawtooth', '__main__', 'sitecustomize'}\n"
        "print(sorted(m for m in others if not m.startswith('_')), sawtooth.__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(unpacked)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split(" ")[0] == "[]", done.stderr
    assert str(unpacked) in done.stdout


def test_its_files_are_python_3_10(unpacked: Path) -> None:
    files = sorted(unpacked.rglob("*.py"))
    assert len(files) > 25
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


def test_its_command_says_what_it_is(unpacked: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sawtooth.ingest.capture.commands import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, str(unpacked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "This is the recorder alone." in done.stdout
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    assert (version.returncode, version.stdout.split()[0]) == (0, "sawtooth-recorder")
