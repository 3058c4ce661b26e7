"""Tests of copies of a working folder, and of the list of changed files."""

import os
from pathlib import Path

from sawtooth.app.trials import folders


def training(folder: Path) -> Path:
    """Make a training folder with a script, read-only data, a virtual environment and a link.

    It also has files that no training reads.
    """
    place = folder / "my training"
    for name, text in {
        "train.py": "print(1)",
        "out/last.pt": "12345",
        "data/big.bin": "x" * 1000,
        ".venv/pyvenv.cfg": "",
        ".venv/lib/torch.py": "y" * 1000,
        ".git/HEAD": "main",
        "__pycache__/train.pyc": "z",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "data/big.bin").chmod(0o444)
    (place / "newest").symlink_to("out/last.pt")
    return place


def test_writing_to_a_copy_does_not_change_the_original(tmp_path: Path) -> None:
    place, copy = training(tmp_path), tmp_path / "copy"
    folders.copy(place, copy)
    assert (copy / "newest").read_text() == "12345"
    (copy / "newest").write_text("new")  # The link leads to the copy's own file.
    (copy / "train.py").unlink()
    assert (place / "out/last.pt").read_text() == "12345" and (place / "train.py").exists()
    # Read-only data and virtual environments are large and are not written to, so they are links to the original.
    assert (copy / "data/big.bin").resolve() == (place / "data/big.bin").resolve()
    assert (copy / ".venv").resolve() == (place / ".venv").resolve()
    assert not (copy / ".git").exists() and not (copy / "__pycache__").exists()


def test_the_size_of_a_copy_counts_only_its_own_files(tmp_path: Path) -> None:
    place = training(tmp_path)
    link = (place / "newest").lstat().st_size
    assert folders.size_of_copy(place) == len("print(1)") + len("12345") + link


def test_paths_of_the_command_point_into_the_copy(tmp_path: Path) -> None:
    place, copy = tmp_path / "a", tmp_path / "b"
    assert folders.move_path(f"--out={place}/run/last.pt", place, copy) == f"--out={copy}/run/last.pt"
    assert folders.move_path(f"{place}-other/x", place, copy) == f"{place}-other/x"


def test_changed_and_removed_files_are_listed_and_new_ones_are_not(tmp_path: Path) -> None:
    place = training(tmp_path)
    before = folders.listing(place, place / "sawtooth")
    (place / "out/last.pt").write_text("longer than before")
    (place / "train.py").unlink()
    (place / "out/new.pt").write_text("new")
    (place / "sawtooth").mkdir()
    (place / "sawtooth/run.json").write_text("of the data folder itself")
    # The target of the link changed too. It may be outside the folder.
    changed = [os.fspath(place / name) for name in ("newest", "out/last.pt", "train.py")]
    assert folders.changed_files(before, place, place / "sawtooth") == changed
    assert folders.added_files(before, place, place / "sawtooth") == [os.fspath(place / "out/new.pt")]
