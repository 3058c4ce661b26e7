"""Change the code in one place at a time and check whether the tests detect it.

    python -m tests.mutation [MODULE…] [--minutes 40] [--seconds 60] [--only LINE]

Each mutant runs in its own process (a fork, so that numpy and scipy are loaded once) with the tests of its module. It
prints the mutants that no test detected and that ``survivors.toml`` does not explain. It exits with 1 if there are any,
if time ran out before all were tried, or if an explained mutant is now detected and its entry can be removed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

TESTS = {  # Module below analysis/ -> its tests below tests/analysis/.
    "intervals": ["test_intervals.py"],
    "derive/lost/ledger": ["derive/lost/test_ledger.py"],
    "replay/bisection": ["replay/test_bisection.py"],
    "replay/edits": ["replay/test_edits.py", "replay/test_whatif.py", "replay/test_whatif_intervals.py"],
    "replay/simulation": ["replay/test_machine_parts.py", "replay/test_simulation.py"],
    "replay/whatif": ["replay/test_whatif.py", "replay/test_whatif_intervals.py"],
    "compare/significance/bootstrap": ["compare/significance/test_bootstrap.py", "compare/significance/test_decision.py"],
    "compare/significance/decision": [f"compare/significance/test_decision{part}.py" for part in ("_words", "_intervals", "")],
    "compare/comparison": ["compare/test_comparison.py", "compare/test_fixed_findings.py", "compare/test_matching.py"],
    "compare/comparison_side": ["compare/test_comparison.py"],
    "compare/gate": ["compare/test_gate.py"],
    "compare/waterfall": ["compare/test_waterfall.py"],
    "compare/chain": ["compare/test_chain.py"],
    "compare/sweep": ["compare/test_sweep.py"],
    "findings/recorded/launches": ["findings/test_launches.py"],
    "findings/plan": ["findings/test_plan.py"],
}
JUDGED = Path(__file__).with_name("survivors.toml")  # The mutants that behave like the code, each with its reason.
SLOWEST = (
    "not two_hundred and not planted_five and not four_times_of_five"  # These simulations test the method, not single lines.
)
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
RENAMED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum", "left": "right", "right": "left",
    "concatenate": None, "low_ms": "high_ms", "high_ms": "low_ms", "median": "mean", "starts": "ends", "ends": "starts",
}  # fmt: skip
SURVIVED, KILLED, TIMEOUT = 0, 1, 2
OUTCOMES = ("survived", "noticed", "timed out")


def mutants(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield (line, what is changed, the changed module)."""
    spots = [(i, n) for i, n in enumerate(ast.walk(tree)) if hasattr(n, "lineno")]
    typed = {id(m) for n in ast.walk(tree) for m in _annotations(n)}
    for index, node in spots:
        if id(node) in typed:
            continue
        for number, (what, _) in enumerate(_changes(copy.deepcopy(node))):
            changed = copy.deepcopy(tree)
            twin = next(n for i, n in enumerate(ast.walk(changed)) if i == index)
            list(_changes(twin))[number][1]()
            yield node.lineno, what, ast.fix_missing_locations(changed)


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        if (found := getattr(node, name, None)) is not None:
            yield from ast.walk(found)
    for name in ("decorator_list",):
        for found in getattr(node, name, []):
            yield from ast.walk(found)


def _changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield the ways to change ``node``: a description, and a function that does it."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                yield f"{_name(op)} → {SWAPPED[type(op)].__name__}", lambda i=i, op=op: ops.__setitem__(i, SWAPPED[type(op)]())
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED:
            yield f"{_name(op)} → {SWAPPED[type(op)].__name__}", lambda: setattr(node, "op", SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.USub()):
            yield "without minus", lambda: setattr(node, "op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not()):
            yield "without not", lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        case ast.Constant(value=bool(value)):
            yield f"{value} → {not value}", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value} → {value + 1}", lambda: setattr(node, "value", value + 1)
        case ast.Constant(value=str(value)) if RENAMED.get(value):
            yield f"{value!r} → {RENAMED[value]!r}", lambda: setattr(node, "value", RENAMED[value])
        case ast.Name(id=name) if RENAMED.get(name) and isinstance(node.ctx, ast.Load):
            yield f"{name} → {RENAMED[name]}", lambda: setattr(node, "id", RENAMED[name])
        case ast.Attribute(attr=name) if RENAMED.get(name):
            yield f".{name} → .{RENAMED[name]}", lambda: setattr(node, "attr", RENAMED[name])
        case ast.IfExp(body=body, orelse=orelse):
            yield "branches swapped", lambda: (setattr(node, "body", orelse), setattr(node, "orelse", body))
        case ast.If(test=test) if not isinstance(test, ast.Compare | ast.BoolOp):
            yield "if not", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))


def _name(node: ast.AST) -> str:
    return type(node).__name__


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, module: str, path: Path, tree: ast.Module) -> None:
        self.module, self.path, self.tree = module, path, tree

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.module else None

    def exec_module(self, module: object) -> None:
        exec(compile(self.tree, str(self.path), "exec"), module.__dict__)


def survives(module: str, path: Path, tree: ast.Module, tests: list[str], seconds: float) -> int:
    """Run ``tests`` with ``module`` made of ``tree``; return SURVIVED or another code."""
    child = os.fork()
    if child == 0:
        os.setsid()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1), os.dup2(silent, 2)
        sys.meta_path.insert(0, Mutated(module, path, tree))
        import pytest
        from hypothesis import settings

        settings.register_profile("mutation", derandomize=True, database=None, deadline=None, max_examples=60)
        settings.load_profile("mutation")
        os._exit(
            SURVIVED
            if pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-m", "not slow", "-k", SLOWEST, *tests])
            == 0
            else KILLED
        )
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return SURVIVED if status == 0 else KILLED
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMEOUT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=", ".join(TESTS))
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=60, help="the longest that the tests of one mutant may take")
    parser.add_argument("--only", type=int, action="append", help="mutate these lines only")
    given = parser.parse_args()
    import duckdb  # noqa: F401  (loaded once, for every fork)
    import hypothesis  # noqa: F401
    import pandas  # noqa: F401
    import scipy.stats  # noqa: F401

    judged = {
        (row["module"], row["line"], row["mutant"]) for row in tomllib.loads(JUDGED.read_text(encoding="utf-8"))["survivor"]
    }
    end = time.monotonic() + given.minutes * 60
    return max([_judge(name, given.only, end, given.seconds, judged) for name in given.modules or TESTS])


def _judge(name: str, only: list[int] | None, end: float, seconds: float, judged: set[tuple[str, str, str]]) -> int:
    """Try the mutants of one module; return 0 if each is detected or explained."""
    path = ROOT / "analysis" / f"{name}.py"
    module = f"sawtooth.analysis.{name.replace('/', '.')}"
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    tests = [str(ROOT / "tests" / "analysis" / test) for test in TESTS[name]]
    counts: Counter[str] = Counter()
    if survives(module, path, tree, tests, seconds * 5) != SURVIVED:
        raise SystemExit(f"The tests of {name} fail on the code as it is.")
    noticed, survived = set[tuple[str, str, str]](), set[tuple[str, str, str]]()
    for line, what, changed in mutants(tree):
        if only and line not in only:
            continue
        if time.monotonic() > end:
            counts["not tried"] += 1
            continue
        mutant = (name, lines[line - 1].strip(), what)
        outcome = survives(module, path, changed, tests, seconds)
        (survived if outcome == SURVIVED else noticed).add(mutant)
        counts[OUTCOMES[outcome] if outcome != SURVIVED else "judged" if mutant in judged else "survived"] += 1
        if outcome == SURVIVED and mutant not in judged:
            print(f"{name}.py:{line}: {what}    {mutant[1]}", flush=True)
    stale = (noticed - survived) & judged
    for _, line, what in sorted(stale):
        print(f"{name}: {what} in `{line}` is noticed by now: its entry in survivors.toml can go", flush=True)
    print(f"{name}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), flush=True)
    return int(bool(stale) or counts["survived"] + counts["not tried"] > 0)


if __name__ == "__main__":
    sys.exit(main())
