"""Tests of choosing the Python for a script if the command names none.

The first Python that has the script's imports is chosen. An unexpected choice is reported.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sawtooth.ingest.capture.command.interpreter import command_with_python

FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] || exit 3
shift 2
for name in "$@"; do case " {modules} " in *" $name "*) ;; *) exit 1;; esac; done
"""
SCRIPT = """
import torch.nn, vision.models
from models import net
from . import sibling
try:
    import apex
except ImportError:
    apex = None
"""
MakePythons = Callable[[str, str, str], None]


@pytest.fixture
def make_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePythons:
    """Write a script, and return a function that writes three Pythons with the given modules.

    The first is the Python of `sawtooth`. The others are first and second on the PATH.
    """

    def pythons(ours: str, first: str, second: str) -> None:
        for folder, modules in (("ours", ours), ("first", first), ("second", second)):
            python = tmp_path / folder / "python"
            python.parent.mkdir(exist_ok=True)
            python.write_text(FAKE_PYTHON.format(modules=modules))
            python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "python"))
        monkeypatch.setenv("PATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "models").mkdir()
    return pythons


@pytest.mark.parametrize(
    ("ours", "first", "second", "chosen"),
    [
        ("torch vision", "torch vision", "", "ours"),
        ("", "torch vision", "torch vision", "first"),  # A venv without PyTorch.
        ("torch", "torch vision", "", "first"),  # A venv without the script's other packages.
        ("torch", "torch", "", "ours"),  # If no Python has the packages, the script reports this.
        ("", "", "", "first"),  # The Python that `python` would start.
        ("", "torch", "torch vision", "second"),
    ],
)
def test_the_first_interpreter_with_the_imported_packages_is_chosen(
    make_pythons: MakePythons, tmp_path: Path, ours: str, first: str, second: str, chosen: str
) -> None:
    make_pythons(ours, first, second)
    words, notice = command_with_python(["train.py", "--epochs", "3"])
    assert words == [str(tmp_path / chosen / "python"), "train.py", "--epochs", "3"]
    first_python = tmp_path / "first" / "python"
    assert notice == (
        f"train.py is run with {words[0]}, because {first_python}, the first Python on the PATH, lacks vision."
        if chosen == "second"
        else None
    )


def test_another_interpreter_is_named_if_the_active_one_lacks_pytorch(
    make_pythons: MakePythons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pythons("", "torch", "torch vision")
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / folder) for folder in ("ours", "first")))
    words, notice = command_with_python(["-m", "rl.train"])
    assert words == [str(tmp_path / "first" / "python"), "-m", "rl.train"]
    assert notice == f"-m rl.train is run with {words[0]}, because {sys.executable}, the first Python on the PATH, lacks torch."


def test_a_command_with_its_own_python_is_not_changed(make_pythons: MakePythons) -> None:
    make_pythons("", "torch vision", "")
    for command in (["python", "train.py"], ["torchrun", "train.py"], ["./train.sh"]):
        assert command_with_python(command) == (command, None)
