"""Tests of generators that are not read to their end.

The garbage collector may close such a generator in a thread that holds a lock. Other threads need this lock to end.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TIMEOUT_S = 60
# A starting thread holds this lock of the standard library for a moment, and an ending thread acquires it (until Python 3.13).
DROPPED_IN_A_STARTING_THREAD = """
import gc, gzip, json, sys, threading
from concurrent.futures import thread as pools
from pathlib import Path
from sawtooth.ingest.source import PIECE_BYTES, Source
from sawtooth.ingest.telemetry.registry import lines
from sawtooth.ingest.trace.torch_json.merging import RankSource, merge_traces

event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
path = Path(sys.argv[1])
path.write_bytes(gzip.compress(json.dumps({"traceEvents": [event] * 20_000}, indent=0).encode(), 1))
source = Source(path)
with source.hash_in_parallel():
    generators = [source.pieces(), lines(Source(path)), merge_traces([RankSource(path, "rank 0", 0)], 0)]
    for generator in generators:
        next(generator)
        next(generator)
    del generator
    of_python = getattr(threading, "_shutdown_locks_lock", threading.Lock())

    class Starting(threading.Thread):
        def run(self):
            with of_python, pools._global_shutdown_lock:
                generators.clear()
                gc.collect()

    starting = Starting()
    starting.start()
    starting.join()
assert source.read_bytes and Source(path).head()
print("ended")
"""
# Context managers of Sawtooth that turn errors into sentences and have no resources.
WITHOUT_RESOURCES = {"_as_ours", "_errors_in_words"}
MANAGERS = {"contextmanager", "asynccontextmanager", "fixture"}
CLOSING_CALLS = {"closing", "list", "sorted", "tuple", "dict"}  # All but the first read a generator to its end.


def test_a_generator_dropped_by_a_starting_thread_does_not_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DROPPED_IN_A_STARTING_THREAD, str(tmp_path / "trace.json.gz")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def _inside(node: ast.AST) -> list[ast.AST]:
    """Return the nodes in a function without those of inner functions."""
    found = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found += [child, *_inside(child)]
    return found


def _name(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _holds_resource(node: ast.AST) -> bool:
    """Return whether ``node`` is a block that yields and releases a resource at its end."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        ends = any(_name(item.context_expr) not in WITHOUT_RESOURCES for item in node.items)
    else:
        ends = isinstance(node, ast.Try) and bool(node.finalbody)
    return ends and any(isinstance(element, (ast.Yield, ast.YieldFrom)) for element in _inside(node))


def _is_resource_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether ``node`` is a generator that holds a resource while it yields."""
    managers = {_name(decorator) for decorator in node.decorator_list}
    return not MANAGERS & managers and any(map(_holds_resource, _inside(node)))


def _functions_of(paths: Iterable[Path]) -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    modules = [(path, ast.parse(path.read_text("utf-8"))) for path in paths]
    return [(p, n) for p, tree in modules for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    rooms = ("ingest", "analysis", "app", "tests/support")
    return {path: path.read_text("utf-8") for room in rooms for path in sorted((ROOT / room).rglob("*.py"))}


@pytest.fixture(scope="module")
def generators(texts: dict[Path, str]) -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return _functions_of(path for path, text in texts.items() if "yield" in text)


def test_every_generator_with_resources_is_closed_by_its_caller(
    texts: dict[Path, str], generators: list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]
) -> None:
    places: dict[str, set[Path]] = {}
    for path, node in generators:
        if _is_resource_generator(node):
            places.setdefault(node.name, set()).add(path)
    assert {"pieces", "lines", "in_processes"} <= places.keys()
    resource_names = re.compile(rf"\b({'|'.join(places)})\b")
    functions = _functions_of(path for path, text in texts.items() if resource_names.search(text))  # Parsing all takes seconds.
    defined = Counter(node.name for _, node in functions)
    unclosed_calls = []
    for path, node in functions:
        element = _inside(node)
        closed = {id(a) for c in element if isinstance(c, ast.Call) and _name(c.func) in CLOSING_CALLS for a in c.args}
        handed_on = {id(back.value) for back in element if isinstance(back, ast.Return)}  # The caller must close it.
        for call in element:
            name = _name(call.func) if isinstance(call, ast.Call) else ""
            makes_generator = path in places.get(name, ()) or (name in places and defined[name] == 1)
            if makes_generator and id(call) not in closed | handed_on:
                unclosed_calls.append(f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}")
    assert unclosed_calls == [], "wrap these in contextlib.closing"


def test_no_code_runs_in_a_finalizer(texts: dict[Path, str]) -> None:
    assert [str(path) for path, text in texts.items() if "def __del__" in text] == []


def test_no_generator_owns_a_pool_of_threads(generators: list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]) -> None:
    for path, node in generators:
        managers = {
            _name(item.context_expr)
            for n in _inside(node)
            if isinstance(n, ast.With) and _holds_resource(n)
            for item in n.items
        }
        assert not managers & {"ThreadPoolExecutor", "ProcessPoolExecutor", "Pool"}, f"{path}: {node.name}"
