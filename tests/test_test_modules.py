"""Tests of the test modules: imports, lengths and paths."""

import re
from pathlib import Path

from tests.support.paths import ROOT

MAX_LINES = 300  # Lines of a test module or of its helpers. A longer module probably has several subjects.


def _test_files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def test_no_test_module_imports_another() -> None:
    """No test module imports another; shared helpers are in tests/support."""
    importing = re.compile(r"^[ \t]*from (tests\S*) import (\([^)]*\)|.*)", re.MULTILINE)
    assert importing.findall("from tests.a import (\n    b,\n)\n  from tests import c") == [
        ("tests.a", "(\n    b,\n)"),
        ("tests", "c"),
    ]
    for path in _test_files():
        for module, names in importing.findall(path.read_text(encoding="utf-8")):
            assert not re.search(r"\b(conftest\b|test_)", f"{module} {names}"), (
                f"{path.relative_to(ROOT)} imports from {module}"
            )


def test_test_modules_are_short_and_use_paths_of_the_support_module() -> None:
    for path in _test_files():
        text = path.read_text(encoding="utf-8")
        assert path.name == "paths.py" or not re.search(r"\.parents\[", text), f"{path.relative_to(ROOT)}: tests.support.paths"
        short = path.parent.name == "support" or path.name.startswith("test_")
        assert not short or len(text.splitlines()) <= MAX_LINES, f"{path.relative_to(ROOT)}: split it by subject"
