"""Tests of the cores that a process may use: its affinity and its container's limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sawtooth.ingest.loop import cores
from sawtooth.ingest.loop.cores import allowed_cores, core_groups, usable_cores


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("membership", "limits", "usable"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 12),
        ("0::/\n", {"cpu.max": "350000 100000\n"}, 4),  # Three and a half cores.
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2),  # The limit of the parent group.
        ("5:cpu,cpuacct:/a\n4:memory:/z\n", {"cpu/a/cpu.cfs_quota_us": "300000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 3),
        ("5:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 12),
        ("0::/../../x\n", {"cpu.max": "100000 100000\n"}, 12),  # A group that this container does not see.
        ("0::/\n", {"cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 12),
    ],
)
def test_the_smaller_of_container_limit_and_affinity_counts(monkeypatch, tmp_path, membership, limits, usable):
    monkeypatch.setattr(cores, "allowed_cores", lambda pid: frozenset(range(12)))
    proc, groups = write_files(tmp_path / "proc", {"7/cgroup": membership}), write_files(tmp_path / "groups", limits)
    assert usable_cores(7, proc, groups) == usable


def test_the_affinity_is_that_of_the_process(tmp_path):
    test_cores = os.sched_getaffinity(0)
    no_process = 2**22 + 5
    assert allowed_cores() == test_cores and allowed_cores(no_process) == test_cores
    assert usable_cores(0, tmp_path, tmp_path) == len(test_cores)
    try:
        os.sched_setaffinity(0, {min(test_cores)})
        assert usable_cores(0, tmp_path, tmp_path) == 1
    finally:
        os.sched_setaffinity(0, test_cores)


def test_groups_of_cores_are_numa_nodes(tmp_path):
    nodes = write_files(tmp_path, {"node0/cpulist": "0-2,6\n", "node1/cpulist": "3-5\n", "node2/cpulist": "\n"})
    assert core_groups(nodes) == [frozenset({0, 1, 2, 6}), frozenset({3, 4, 5})]
    assert core_groups(tmp_path / "none") == core_groups(write_files(tmp_path / "one", {"node0/cpulist": "0-3\n"})) == []
