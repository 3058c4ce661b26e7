"""Tests of the architecture: import order, modules that stay unloaded, names, and sizes of modules."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from sawtooth.app.places import SCREENS
from tests.support import installed_layout
from tests.support.paths import ROOT

SCREENS_FOLDER = ROOT / "app" / "screens"
OURS = ("app", "ingest", "analysis")
STDLIB = sys.stdlib_module_names

# Module prefix -> the libraries that its modules may import besides the standard library. The longest matching prefix applies.
# .importlinter states the allowed imports among our own packages.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "sawtooth": (),
    "sawtooth.notebook": ("pandas", "plotly"),
    "sawtooth.ingest.sampler": ("pynvml",),
    "sawtooth.ingest.quantities": (),  # The sampler imports it.
    "sawtooth.ingest.loop": (),  # The capture helper imports it.
    "sawtooth.ingest.capture": ("torch", "lightning", "pytorch_lightning", "transformers"),
    "sawtooth.ingest": ("duckdb", "msgspec", "isal", "numpy", "pyarrow", "psutil"),
    "sawtooth.analysis": ("duckdb", "pandas", "numpy", "scipy", "tsdownsample", "msgspec", "isal"),
    "sawtooth.analysis.cluster": ("duckdb", "pandas", "numpy", "msgspec", "pyarrow"),
    "sawtooth.analysis.findings.rules": ("duckdb", "pandas", "numpy", "scipy"),
    "sawtooth.app": (
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
        "markupsafe",
    ),
    "sawtooth.app.agent": ("mcp", "pydantic", "msgspec", "numpy"),
    "sawtooth.app.templates": ("jinja2", "markupsafe"),
    "sawtooth.app.charts": ("plotly", "pandas", "numpy", "markupsafe"),
    "sawtooth.app.format": ("pandas",),
    "sawtooth.app.theme": (),
    "sawtooth.app.screens": ("streamlit", "pandas", "numpy"),
}
IN_A_TRAINING = ("sawtooth.ingest.capture", "sawtooth.ingest.loop", "sawtooth.ingest.sampler")  # May import relatively.
# These names say where a value comes from, not what it is.
VAGUE = {
    "apart", "around", "found", "given", "hear", "heard", "held", "kept", "meet", "mine", "others", "said", "tell", "told", "usual",
}  # fmt: skip
MAX_MODULES = 15  # Modules of a package. In a longer list, a reader does not find a module by its name.
MAX_LINES = 300  # Lines of a module. A longer module probably has two purposes.
LISTS = {"rules", "screens", "commands", "formats", "charts"}  # Packages that are lists with one file per entry.
MAX_POSITIONAL = 6  # Parameters without names in calls. Readers cannot remember the order of more.
# imported only inside functions that need it
LAZY = {
    "sawtooth.analysis": ("torch",),
    "sawtooth.app": ("mcp", "prometheus_client"),
    "sawtooth.analysis.cluster": ("ray", "obstore"),
}


def _modules() -> list[tuple[str, Path]]:
    places = [("sawtooth", ROOT / "sawtooth"), *((f"sawtooth.{room}", ROOT / room) for room in OURS)]
    return [
        (".".join((prefix, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"), path)
        for prefix, folder in places
        for path in sorted(folder.rglob("*.py"))
    ]


def _imports(path: Path, module: str) -> list[tuple[str, bool]]:
    """Return (imported module, at the top level of the file)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, id(node) not in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or module.startswith(IN_A_TRAINING), f"{module}: relative imports hide who uses whom"
            imports.append((_absolute(node, path, module), id(node) not in inside))
    return imports


def _absolute(node: ast.ImportFrom, path: Path, module: str) -> str:
    """Return the full name of the module that ``node`` imports from."""
    above = module.split(".")[: len(module.split(".")) + (path.name == "__init__.py") - node.level]
    return ".".join([*(above if node.level else []), *([node.module] if node.module else [])])


def test_the_hook_of_a_training_imports_nothing_by_the_name_sawtooth() -> None:
    # The hook is loaded under a private name, because `sawtooth` may be a module of the training.
    files, seen = dict(_modules()), set()
    waiting = ["sawtooth.ingest.capture.command.hook", "sawtooth.ingest.capture.attach.inside"]
    while waiting:
        module = waiting.pop()
        if module not in files or module in seen or module == "sawtooth":
            continue
        seen.add(module)
        waiting.append(module.rpartition(".")[0])
        for node in ast.walk(ast.parse(files[module].read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                name = _absolute(node, files[module], module)
                assert node.level or not name.startswith("sawtooth"), f"{module} imports {name}: write it relatively"
                waiting += [name, *(f"{name}.{alias.name}" for alias in node.names)] if node.level else []
            elif isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "sawtooth" for alias in node.names), module
    assert len(seen) > 20


def _room(module: str) -> str:
    return max((room for room in LIBRARIES if module == room or module.startswith(f"{room}.")), key=len)


def _allowed(imported: str, names: tuple[str, ...]) -> bool:
    return imported.split(".")[0] in (*STDLIB, "sawtooth", *names)


def test_modules_import_only_the_libraries_of_their_package() -> None:
    wrong = []
    for module, path in _modules():
        room = _room(module)
        for imported, at_top in _imports(path, module):
            if not _allowed(imported, LIBRARIES[room] + (() if at_top else LAZY.get(room, ()))):
                wrong.append(f"{module} ({room}) may not import {imported}")
    assert wrong == []


def test_the_list_of_libraries_catches_a_violation() -> None:
    assert not _allowed("streamlit", LIBRARIES["sawtooth.analysis"])
    assert not _allowed("duckdb", LIBRARIES["sawtooth.app.screens"])
    assert not _allowed("duckdb", LIBRARIES["sawtooth.ingest.sampler"])
    assert not _allowed("analysis.version", LIBRARIES["sawtooth.app"]), "our own rooms have one name"


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the installed layout, because it reads files and ignores ``__path__``."""
    command = [sys.executable, "-P", "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    arguments = ["--config", str(ROOT / ".importlinter"), "--no-cache"]
    return subprocess.run([*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=180)


def test_top_packages_import_each_other_in_one_direction(tmp_path: Path) -> None:
    done = _lint_imports(installed_layout.make(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_import_in_the_wrong_direction_is_found(tmp_path: Path) -> None:
    folder = installed_layout.make(tmp_path)
    path = folder / "sawtooth" / "ingest" / "errors.py"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text + "\nimport sawtooth.app.format\n", encoding="utf-8")
    assert _lint_imports(folder).returncode == 1


def test_every_package_has_a_docstring() -> None:
    for module, path in _modules():
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), module


def test_a_module_exists_once() -> None:
    """Every module of Sawtooth has one name and one module object after all modules are imported."""
    modules = [
        m
        for m, p in _modules()
        if not m.startswith(("sawtooth.app.screens.", "sawtooth.app.main", "sawtooth.app.dashboard", "sawtooth.__main__"))
    ]
    code = (
        f"import importlib, json, sys\nfor m in {modules!r}: importlib.import_module(m)\n"
        "files = [m.__file__ for n, m in sys.modules.items() if getattr(m, '__file__', None)]\n"
        f"files = [f for f in files if f.startswith({tuple(f'{ROOT}/{room}/' for room in ('sawtooth', *OURS))!r})]\n"
        "print(json.dumps([len(files), len(set(files)), sorted({'app', 'ingest', 'analysis', 'torch', 'pynvml'} & set(sys.modules))]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    loaded, distinct, wrong = json.loads(done.stdout.strip().splitlines()[-1])
    assert loaded == distinct >= len(modules)
    assert wrong == [], "the app loads neither torch nor the driver, and nothing under a bare name"


def test_no_name_in_app_shadows_another_package() -> None:
    """No name in app/ shadows another package, because Streamlit puts ``app/`` first on sys.path."""
    from importlib.metadata import packages_distributions

    taken = set(STDLIB) | set(packages_distributions())
    names = {p.stem for p in (ROOT / "app").iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())}
    assert (names - {"__init__"}) & taken == set()
    assert "pages" not in {p.name for p in (ROOT / "app").iterdir()}


def test_every_screen_file_is_registered_once_and_every_registered_screen_has_a_docstring() -> None:
    names = [screen.name for screen in SCREENS]
    assert len(names) == len(set(names))
    assert {p.stem for p in SCREENS_FOLDER.glob("*.py")} - {"__init__"} == set(names)
    for path in SCREENS_FOLDER.glob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name


def test_commands_print_only_through_the_escaping_function() -> None:
    # Without this, a file's name could move the cursor of a terminal.
    modules = [ROOT / "app" / "cli.py", *sorted((ROOT / "app" / "commands").glob("*.py"))]
    calls = {module.name for module in modules if re.search(r"\b(typer\.echo|click\.echo|print)\(", module.read_text())}
    assert calls == {"output.py"}


def test_screens_hold_no_sql() -> None:
    for path in SCREENS_FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.match(r"\s*(SELECT|WITH|INSERT|COPY|ATTACH)\s.*\bFROM\b", node.value, re.DOTALL), (
                    f"{path.name}: {node.value[:60]}"
                )


def test_no_window_function_filters_its_rows() -> None:
    # For such a filter, DuckDB reads the whole partition for every row, which takes 14 s for 390,000 operators. `count(CASE …)`
    # takes 0.06 s.
    filtering = re.compile(r"\bFILTER\s*\((?:[^()]|\([^()]*\))*\)\s*OVER\b")
    assert filtering.search("count(*) FILTER (NOT f(a)) OVER (ORDER BY b)")
    sources = [
        path
        for room in ("ingest", "analysis", "app")
        for suffix in ("py", "sql")
        for path in (ROOT / room).rglob(f"*.{suffix}")
    ]
    assert [path.name for path in sources if filtering.search(path.read_text(encoding="utf-8"))] == []


def _positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the parameters that a call may pass by position."""
    return [p.arg for p in (*function.args.posonlyargs, *function.args.args) if p.arg not in ("self", "cls")]


def _identifiers(tree: ast.Module) -> set[str]:
    """Return a module's names of variables, parameters, attributes, functions and classes."""
    names = {
        ast.Name: "id", ast.arg: "arg", ast.keyword: "arg", ast.Attribute: "attr", ast.alias: "asname",
        ast.FunctionDef: "name", ast.AsyncFunctionDef: "name", ast.ClassDef: "name", ast.ExceptHandler: "name",
    }  # fmt: skip
    return {str(getattr(node, names[type(node)])) for node in ast.walk(tree) if type(node) in names}


def test_names_are_specific_and_many_arguments_are_named() -> None:
    """No identifier is vague; many parameters are passed by name, except in typer's commands."""
    for module, path in _modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert {name for name in _identifiers(tree) if name.strip("_").lower() in VAGUE} == set(), module
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not module.startswith("sawtooth.app.commands."):
                assert len(_positional(node)) <= MAX_POSITIONAL, f"{module}.{node.name}"


def test_a_vague_name_is_noticed() -> None:
    tree = ast.parse("def f(given):\n    for found in given.told: yield x(said=found)")
    assert {"given", "found", "told", "said"} <= _identifiers(tree)


def test_packages_have_at_most_15_modules() -> None:
    counts: dict[Path, int] = {}
    for _, path in _modules():
        counts[path.parent] = counts.get(path.parent, 0) + (path.name != "__init__.py")
    crowded = {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MAX_MODULES and folder.name not in LISTS}
    assert crowded == {}


def test_modules_have_at_most_300_lines() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in _modules()}
    assert {module: lines for module, lines in lengths.items() if lines > MAX_LINES} == {}
