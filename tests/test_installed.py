"""Tests of the installed package: an editable install, a wheel and a plain checkout.

The user's own repository has packages with the names of our top-level packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import RECORDINGS, ROOT

ROOMS = {
    "app": "sawtooth/app",
    "ingest": "sawtooth/ingest",
    "analysis": "sawtooth/analysis",
    "sample_traces": "sawtooth/sample_traces",
}
SHIPPED = {"sawtooth": "sawtooth", **ROOMS}
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
OFFLINE = ("--no-deps", "--no-index", "--no-build-isolation", "-q")


def run(*line: str | Path, cwd: Path, path: str = "") -> str:
    """Run a command with ``path`` as PYTHONPATH and return its output; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([str(part) for part in line], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, *PIP, "wheel", *OFFLINE, "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("sawtooth-*.whl")
    return path


def test_a_wheel_contains_exactly_the_files_of_the_packages(wheel: Path) -> None:
    expected = {
        f"{target}/{path.relative_to(ROOT / source).as_posix()}"
        for source, target in SHIPPED.items()
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected
    for part in ("ingest/schema.sql", "analysis/knowledge/hardware.toml", "sample_traces/gpt/trace.json.gz"):
        assert f"sawtooth/{part}" in names
    assert {Path(name).suffix for name in names} >= {".py", ".sql", ".toml", ".gz", ".css", ".js", ".html"}


@dataclass(frozen=True)
class Copy:
    """One installation of Sawtooth: its interpreter, its PYTHONPATH, and the folder of its modules."""

    python: Path
    path: str
    home: Path  # The folder from which its modules must be imported.


def _checkout(folder: Path) -> Copy:
    return Copy(Path(sys.executable), str(ROOT), ROOT)


def _editable(folder: Path) -> Copy:
    """Return a virtual environment with this one's libraries but without its Sawtooth."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    run(python, *PIP, "install", *OFFLINE, "--editable", ROOT, cwd=folder)
    return Copy(python, "", ROOT)


@pytest.fixture(
    scope="session",
    params=["checkout", "wheel", pytest.param("editable", marks=pytest.mark.skipif(os.name == "nt", reason="paths"))],
)
def copy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "wheel":
        run(sys.executable, *PIP, "install", *OFFLINE, "--target", folder, request.getfixturevalue("wheel"), cwd=folder)
        return Copy(Path(sys.executable), str(folder), folder / "sawtooth")
    return {"checkout": _checkout, "editable": _editable}[request.param](folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a training repository whose packages have the names of our top-level packages.

    Importing one of them raises an error.
    """
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(
            f"raise RuntimeError('the repository has its own {room}')\n", encoding="utf-8"
        )
    return tmp_path


def test_an_installed_copy_works_next_to_packages_with_the_same_names(copy: Copy, repository: Path) -> None:
    path = os.pathsep.join(filter(None, (str(repository), copy.path)))
    code = "from sawtooth.capture import profile; import json, sawtooth.app, sawtooth.ingest, sawtooth.analysis as a; print(a.__file__)"
    assert Path(run(copy.python, "-c", code, cwd=repository, path=path).strip()).is_relative_to(copy.home)
    line = ("-m", "sawtooth", "report", RECORDINGS / "mlp_graph" / "trace.json.gz", "--format", "json")
    report = json.loads(run(copy.python, *line, cwd=repository, path=path))
    stopwatch_s = json.loads((RECORDINGS / "mlp_graph" / "truth.json").read_text(encoding="utf-8"))["step_s_pipelined"]
    assert report["metrics"]["step_time_ms"]["value"] == pytest.approx(stopwatch_s * 1000, rel=0.1)


def test_the_capture_helper_loads_the_standard_library_only() -> None:
    code = (
        "import sys; from sawtooth.capture import hugging_face_callback, lightning_callback, profile; "
        "print(sorted({'duckdb', 'msgspec', 'numpy', 'pandas', 'pyarrow', 'streamlit', 'torch', 'pynvml'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-P", "-c", code, cwd=ROOT, path=str(ROOT)).strip() == "[]"
