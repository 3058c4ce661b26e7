"""Tests of changed command-line arguments: they come first, with values but without secrets."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec

from sawtooth.analysis.compare.changed.arguments import changed_arguments
from sawtooth.analysis.compare.changed.differences import differences, effects
from sawtooth.analysis.compare.changed.setup_traits import Trait
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.waterfall import RunRow
from sawtooth.app.words.comparisons import conditions, setup_changes
from tests.support.run_results import run_of, side


def test_each_changed_argument_is_a_difference() -> None:
    a = ["python", "train.py", "--workers", "0", "--lr", "0.1", "--profile", "--api-key", "one"]
    b = ["train.py", "--lr", "0.1", "--workers", "8", "--amp", "--api-key", "two"]
    shown = [(d.what, d.a, d.b) for d in changed_arguments(a, b)]
    assert shown == [
        ("--workers", "0", "8"),
        ("--amp", "not set", "set"),
        ("--api-key", "set", "set"),
        ("--profile", "set", "not set"),
    ]
    assert [(d.what, d.a, d.b) for d in changed_arguments(["slow.py"], ["fast.py"])] == [("Program", "slow.py", "fast.py")]
    assert changed_arguments(a, a) == changed_arguments([], b) == changed_arguments(a, []) == ()


def test_words_without_a_flag_are_compared_by_position() -> None:
    shown = [(d.what, d.a, d.b) for d in changed_arguments(["train.py", "resnet", "host"], ["train.py", "resnet", "gpu"])]
    assert shown == [("Argument 2", "host", "gpu")]
    assert [(d.what, d.a, d.b) for d in changed_arguments(["t.py", "a"], ["t.py", "b"])] == [("Argument", "a", "b")]
    assert [(d.what, d.a, d.b) for d in changed_arguments(["t.py"], ["t.py", "a", "b"])] == [("Arguments", "not set", "a b")]


def test_argument_is_listed_before_its_effects() -> None:
    waterfall = (RunRow("idle", "data_wait", Fraction(50), Fraction(2)),)
    loader = differences(
        (Trait("loader", "loader", "inline", ("data_wait",)),), (Trait("loader", "loader", "8", ("data_wait",)),), [], []
    )
    arguments = changed_arguments(["train.py"], ["train.py", "--workers", "8"])
    assert [effect.differences[0].key for effect in effects((*arguments, *loader), waterfall)] == [
        "argument --workers",
        "loader",
    ]


def recorded(command: list[str], identifier: str, best_ms: float):
    run = run_of(identifier, best_ms=best_ms, source="user", facts=None)
    return replace(run, manifest=msgspec.structs.replace(run.manifest, command=command))


def test_arguments_are_compared_if_all_runs_of_a_side_share_them() -> None:
    slow = [recorded(["train.py", "--workers", "0"], f"a{i:015x}", 100.0 + i) for i in range(3)]
    fast = [recorded(["train.py", "--workers", "8"], f"b{i:015x}", 50.0 + i) for i in range(3)]
    comparison = compare(side(*slow), side(*fast))
    assert setup_changes.rows(comparison)[0][:3] == ("--workers", "0", "8")
    # The change itself is not listed again among "what else differs".
    assert "--workers" in {pair.what for pair in comparison.conditions if pair.differs}
    assert "--workers" not in {what for what, _, _ in conditions.rows(comparison)}
    first = compare_json(comparison)["changed"][0]["differences"][0]
    assert (first["key"], first["a"], first["b"]) == ("argument --workers", "0", "8")
    mixed = [*fast[:2], recorded(["train.py", "--workers", "4"], "c" * 16, 51.0)]
    assert setup_changes.rows(compare(side(*slow), side(*mixed))) == []
