"""Tests of the text about late ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.ranks.stragglers.sentences import straggler_cause, straggler_name
from sawtooth.analysis.run.job import Straggler


def late(kind: Any, positions: tuple[int, ...], ranks: tuple[int | None, ...], host: str | None = None) -> Straggler:
    return Straggler(kind, positions, ranks, host, "work", None, 1.0, 1.0)


ONE_HOST: list[Any] = [SimpleNamespace(device=i, trace=SimpleNamespace(source_name=f"{i}.json")) for i in range(2)]
TWO_HOSTS: list[Any] = [
    SimpleNamespace(device=i % 3, host=f"node{i // 3}", trace=SimpleNamespace(source_name=f"{i}.json")) for i in range(6)
]
HOSTS: list[Any] = [SimpleNamespace(device=0, trace=SimpleNamespace(source_name=f"host{i}.json")) for i in range(8)]


@pytest.mark.parametrize(
    ("straggler", "ranks", "name"),
    [
        (late("rank", (1,), (5,)), ONE_HOST, "rank 5"),
        (late("set", (0, 1), (2, 5)), ONE_HOST, "ranks 2 and 5"),
        (late("rank", (1,), (None,)), ONE_HOST, "device 1"),
        (late("rank", (7,), (None,)), HOSTS, "trace host7.json"),
        (late("set", (6, 7), (None, None)), HOSTS, "traces host6.json and host7.json"),
        (late("host", (0, 1), tuple(range(8)), "node0002"), HOSTS, "host node0002 with its 8 ranks"),
        (late("set", (0,), tuple(range(16))), HOSTS, "16 ranks"),
        (late("set", tuple(range(6)), tuple(range(6))), TWO_HOSTS, "6 ranks on hosts node0 and node1"),
        (late("rank", (), (300,)), HOSTS, "rank 300"),
    ],
)
def test_late_rank_is_named_by_number_or_distinguishing_property(straggler: Straggler, ranks: list[Any], name: str) -> None:
    assert straggler_name(straggler, ranks) == name


@pytest.mark.parametrize(
    ("kind", "ranks", "reason", "ratio", "words"),
    [
        ("rank", (5,), "data_wait", None, "its data loader"),
        ("set", (5, 7), "data_wait", None, "their data loader"),
        ("host", (0, 1), "python_host", None, "Python on its host"),
        ("set", (5, 7), None, 1.456, "equal kernels that take up to 1.46 times as long on their GPUs"),
        ("rank", (5,), None, 1.456, "equal kernels that take 1.46 times as long on its GPU"),
        ("set", (5, 7), None, None, None),
    ],
)
def test_reasons_use_singular_or_plural(
    kind: Any, ranks: tuple[int, ...], reason: str | None, ratio: float | None, words: str | None
) -> None:
    assert straggler_cause(Straggler(kind, ranks, ranks, "node0", reason, ratio, 1.0, 1.0)) == words
