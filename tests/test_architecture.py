"""Who may import whom, what stays unloaded, and that every registry is documented."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.metrics import METRICS
from app.frame import SCREENS, SCREENS_FOLDER
from app.reference_tables import HEADINGS, columns, rules

ROOT = Path(__file__).parents[1]
OURS = ("app", "ingest", "analysis")
STDLIB = sys.stdlib_module_names

# Room (a module prefix, the longest one that fits counts) -> what its modules may import besides the standard library.
ROOMS: dict[str, tuple[str, ...]] = {
    "ingest.sampler": ("pynvml", "ingest.sampler"),
    "ingest.capture": ("torch", "ingest"),
    "ingest": ("duckdb", "msgspec", "isal", "numpy", "pyarrow", "psutil", "ingest"),
    "analysis.rules": ("duckdb", "pandas", "numpy", "scipy", "analysis", "ingest.errors", "ingest.schema"),
    "analysis": (
        *("duckdb", "pandas", "numpy", "scipy", "tsdownsample", "msgspec", "analysis"),
        *("ingest.errors", "ingest.schema", "ingest.files"),
    ),
    # analysis.judgement, series and timeline for what they return: a chart draws it and asks for nothing
    "app.charts": (
        *("plotly", "pandas", "numpy", "app.charts", "app.format", "app.theme"),
        *("analysis.metrics", "analysis.judgement", "analysis.sawtooth", "analysis.series", "analysis.timeline"),
    ),
    "app.format": ("pandas", "analysis.metrics"),
    "app.theme": (),
    "app.screens": ("streamlit", "pandas", "numpy", "app", "analysis", "ingest.schema", "ingest.errors"),
    "app": (
        "streamlit",
        "starlette",
        "uvicorn",
        "msgspec",
        "typer",
        "click",
        "rich",
        "pandas",
        "plotly",
        "psutil",
        "numpy",
        "duckdb",
        "app",
        "analysis",
        "ingest",
        "sample_traces",
    ),
}
# Imports only where a function needs them (optional at run time, never loaded with the app).
LAZY = {"analysis": ("torch",), "ingest.sampler": ()}


def _modules() -> list[tuple[str, Path]]:
    return [
        (".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path)
        for top in OURS
        for path in sorted((ROOT / top).rglob("*.py"))
    ]


def _imports(path: Path, module: str) -> list[tuple[str, bool]]:
    """Return (imported module, at the top level of the file)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide who uses whom"
            # `from app import x` may name a module or a thing: both count as the package plus the name
            found += [
                (f"{node.module}.{a.name}" if node.module in OURS else str(node.module), id(node) not in inside)
                for a in node.names
            ]
    return found


def _room(module: str) -> str:
    return max((room for room in ROOMS if module == room or module.startswith(f"{room}.")), key=len)


def _allowed(imported: str, names: tuple[str, ...]) -> bool:
    return imported.split(".")[0] in STDLIB or any(imported == n or imported.startswith(f"{n}.") for n in names)


@pytest.mark.parametrize(("module", "path"), _modules())
def test_a_module_imports_only_what_its_room_may_use(module: str, path: Path) -> None:
    room = _room(module)
    for imported, at_top in _imports(path, module):
        names = ROOMS[room] + (() if at_top else LAZY.get(room, ()))
        assert _allowed(imported, names), f"{module} ({room}) may not import {imported}"


def test_no_module_imports_one_that_imports_it() -> None:
    """Also over others, inside functions, and for types only: what two modules share belongs into a third."""
    known = dict(_modules())
    uses: dict[str, set[str]] = {}
    for module, path in known.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        uses[module] = found & set(known) - {module} - set(OURS)
    while free := {
        module for module, used in uses.items() if not used & set(uses)
    }:  # what is left at the end is in a circle, or above one
        uses = {module: used for module, used in uses.items() if module not in free}
    circles = {module: sorted(used & set(uses)) for module, used in uses.items()}
    assert circles == {}


@pytest.mark.parametrize(("module", "path"), [m for m in _modules() if m[0].startswith("analysis.rules.")])
def test_a_rule_does_not_import_another(module: str, path: Path) -> None:
    for imported, _ in _imports(path, module):
        assert not (
            imported.startswith("analysis.rules.") and imported != module and not imported.split(".")[2].startswith("_")
        ), imported


def test_the_import_rules_catch_a_violation() -> None:
    assert not _allowed("streamlit", ROOMS["analysis"])
    assert not _allowed("ingest.recording", ROOMS["analysis"])
    assert not _allowed("duckdb", ROOMS["app.screens"])
    assert not _allowed("duckdb", ROOMS["ingest.sampler"])
    assert _allowed("ingest.errors", ROOMS["analysis"])


def test_no_name_in_app_shadows_a_package_of_somebody_else() -> None:
    """Streamlit puts ``app/`` first on sys.path."""
    from importlib.metadata import packages_distributions

    taken = set(STDLIB) | set(packages_distributions())
    names = {p.stem for p in (ROOT / "app").iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())}
    assert (names - {"__init__"}) & taken == set()
    assert "pages" not in {p.name for p in (ROOT / "app").iterdir()}


def test_importing_app_and_analysis_loads_no_torch() -> None:
    modules = [
        m
        for m, _ in _modules()
        if m.startswith(("app", "analysis")) and not m.startswith("app.screens.") and m not in ("app.main", "app.dashboard")
    ]
    code = f"import importlib, json, sys\nfor m in {modules!r}: importlib.import_module(m)\nprint(json.dumps(sorted({{'torch', 'pynvml'}} & set(sys.modules))))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(out.stdout.strip().splitlines()[-1]) == []


def test_a_stranger_s_package_of_our_name_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "__init__.py").write_text("")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({str(ROOT)!r}); import app"
    out = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert out.returncode == 1
    assert out.stderr.startswith("Sawtooth needs its own package 'analysis'")
    assert "Traceback" not in out.stderr


def test_every_screen_file_is_registered_once_and_every_registered_screen_has_a_docstring() -> None:
    names = [screen.name for screen in SCREENS]
    assert len(names) == len(set(names))
    assert {p.stem for p in SCREENS_FOLDER.glob("*.py")} - {"__init__"} <= set(names)
    for screen in SCREENS:
        if screen.exists:
            assert ast.get_docstring(ast.parse(screen.file.read_text(encoding="utf-8"))), screen.name


def test_screens_hold_no_sql() -> None:
    for path in SCREENS_FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.match(r"\s*(SELECT|WITH|INSERT|COPY|ATTACH)\s.*\bFROM\b", node.value, re.DOTALL), (
                    f"{path.name}: {node.value[:60]}"
                )


def test_every_metric_is_defined_in_words() -> None:
    for metric in METRICS.values():
        assert metric.definition.endswith("."), metric.key
        assert metric.source.endswith("."), metric.key
        assert metric.better in ("lower", "higher", "neither")


def test_every_column_of_the_store_has_a_comment() -> None:
    assert len(columns()) > 150
    assert [f"{c.table}.{c.column}" for c in columns() if not c.comment.strip()] == []


def test_every_rule_says_what_why_what_to_do_and_when_it_is_wrong() -> None:
    for rule in rules():
        headings = [heading for heading, _ in rule.sections]
        assert headings == list(HEADINGS), rule.slug
        assert all(text for _, text in rule.sections), rule.slug
