"""Tests of the container image.

The image must build from the files that .dockerignore does not exclude. The image and the conda recipe must agree with
pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import PurePosixPath

import pytest
import yaml

from tests.support.paths import ROOT

DOCKERFILE = ROOT / "Dockerfile"


def copied_sources(dockerfile: str) -> list[str]:
    """Return the paths that a Dockerfile copies from the build context."""
    lines = re.sub(r"\\\n", " ", dockerfile).splitlines()
    words = [line.split()[1:] for line in lines if re.match(r"(COPY|ADD)\s", line)]
    return [
        source for parts in words if not any(part.startswith("--from") for part in parts) for source in options_cut(parts)[:-1]
    ]


def options_cut(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith("--")]


def pattern_of(rule: str) -> re.Pattern[str]:
    """Return the regular expression for a rule of .dockerignore.

    ``**`` matches any number of folders; ``*`` and ``?`` match only within one. All paths below a matching folder also match.
    """
    parts = [{"**": r"(?:.*/)?"}.get(part, glob_of(part) + "/") for part in PurePosixPath(rule.lstrip("/")).parts]
    return re.compile("".join(parts).removesuffix("/") + r"(?:/.*)?")


def glob_of(part: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign)) for sign in part)


def is_left_out(path: str, rules: list[str]) -> bool:
    """Return whether Docker leaves ``path`` out of the context; the last matching rule decides."""
    fitting = [rule for rule in rules if pattern_of(rule.removeprefix("!")).fullmatch(path)]
    return bool(fitting) and not fitting[-1].startswith("!")


def rules_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize(
    ("rules", "path", "left_out"),
    [
        (["*"], "a/b", True),
        (["*", "!a"], "a/b", False),
        (["*", "!a", "a/b"], "a/b/c", True),
        (["!a", "*"], "a", True),
        (["**/*.pyc"], "a/b/c.pyc", True),
        (["**/*.pyc"], "c.pyc", True),
        (["*.pyc"], "a/c.pyc", False),
        (["/a?c"], "abc", True),
        (["a"], "ab", False),
    ],
)
def test_dockerignore_rules_match_docker(rules: list[str], path: str, left_out: bool) -> None:
    assert is_left_out(path, rules) == left_out


def test_everything_that_the_image_copies_is_in_the_build_s_context() -> None:
    rules, sources = rules_of((ROOT / ".dockerignore").read_text()), copied_sources(DOCKERFILE.read_text())
    assert {"requirements.lock", "pyproject.toml", "app"} <= set(sources)
    listed = subprocess.run(["git", "ls-files", "--", *sources], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listed.stdout.splitlines() or [p.relative_to(ROOT).as_posix() for s in sources for p in (ROOT / s).rglob("*.py")]
    missing = [source for source in sources if not (ROOT / source).exists()]
    assert not missing
    assert [path for path in (*sources, *files) if is_left_out(path, rules)] == []
    assert is_left_out(".git/config", rules) and is_left_out("app/__pycache__/x.pyc", rules)


def test_the_health_check_of_the_image_runs_an_existing_module() -> None:
    (command,) = re.findall(r"HEALTHCHECK.*?CMD (\[.*?\])", DOCKERFILE.read_text(), flags=re.DOTALL)
    python, option, module = json.loads(command)
    assert (python, option) == ("python", "-m") and importlib.util.find_spec(module) is not None


def test_image_and_conda_recipe_have_the_version_and_packages_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE.read_text()))
    assert {"title", "description", "licenses", "version", "revision", "source"} <= labels.keys()
    assert f"ARG VERSION={project['version']} " in DOCKERFILE.read_text()
    recipe = yaml.safe_load((ROOT / "docs" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == project["version"] and recipe["about"]["summary"] == project["description"]
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    of_conda = {"python-duckdb": "duckdb", "python-isal": "isal"}
    python, *packages = (item.split() for item in recipe["requirements"]["run"])
    assert python[0] == "python"
    assert ["".join([of_conda.get(name, name), bounds]) for name, bounds in packages] == project["dependencies"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"sawtooth = {project['scripts']['sawtooth']}"
