"""Tests of requirements.lock: it agrees with pyproject.toml, and the image and the checks install it."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement

from tests.support.paths import ROOT

LOCKED = re.compile(r"^([\w.-]+)==(\S+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def test_every_dependency_is_locked_within_its_bounds_with_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    locked: dict[str, list[str]] = {}
    for name, version, _ in LOCKED.findall(text):
        locked.setdefault(name, []).append(version)  # Some Python versions need another version of a package.
    assert sum(map(len, locked.values())) == len(re.findall(r"^\w.*==", text, re.MULTILINE)) > 40
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        wanted = Requirement(line)
        assert all(wanted.specifier.contains(version) for version in locked[wanted.name.lower()]), line


def test_the_lock_names_no_index() -> None:
    assert "http" not in (ROOT / "requirements.lock").read_text()


def test_the_image_and_the_checks_install_locked_versions() -> None:
    for path in ("Dockerfile", ".ci/run"):
        assert "--require-hashes --only-binary :all: -r requirements.lock" in (ROOT / path).read_text(), path


def test_every_dependency_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recorder = tomllib.loads((ROOT / "recorder" / "pyproject.toml").read_text())["project"]
    for line in (*project["dependencies"], *recorder["dependencies"]):
        assert "<" in line, line


def test_the_image_is_built_on_one_exact_base() -> None:
    """Both stages of the image use the same exact base image."""
    text = (ROOT / "Dockerfile").read_text()
    base = re.search(r"^ARG BASE=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert base and re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
