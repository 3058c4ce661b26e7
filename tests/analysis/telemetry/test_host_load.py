"""Tests of the host's limits of loader workers, by the cores that the training may use."""

from __future__ import annotations

import pytest

from sawtooth.analysis.telemetry.host import HostLoad

WORKERS = {"workers": 8.0, "workers_cpu_pct": 85.0, "cores": 8.0}


@pytest.mark.parametrize(
    ("cores", "limit"),
    [
        ({"cpu_pct": 48.0, "cpu_usable_pct": 96.0}, "cores"),  # The process may use eight of sixteen cores, and these are full.
        ({"cpu_pct": 95.0, "cpu_usable_pct": 60.0}, "worker"),  # Other processes fill the rest of the host.
        ({"cpu_pct": 96.0}, "cores"),  # An older recording, or a container's limit.
        ({}, None),
    ],
)
def test_full_cores_count_only_allowed_cores(cores: dict[str, float], limit: str | None) -> None:
    assert HostLoad(WORKERS | cores, {}, 9).limit_of_loader() == limit


@pytest.mark.parametrize(
    ("host", "clause"),
    [
        (
            {"cpu_pct": 99.0, "cores": 2.0, "run_queue": 5.1},
            "this host has no free core: 2 cores are busy 99 % of the time, and 5.1 tasks want one",
        ),
        ({"cpu_pct": 97.0, "cpu_pressure_pct": 40.0}, "this host has no free core: its cores are busy 97 % of the time"),
        (
            {"cpu_pct": 99.0, "cores": 2.0, "run_queue": 2.0, "cpu_pressure_pct": 1.0},
            None,
        ),  # The training's own threads use both cores completely.
        ({"cpu_pct": 50.0, "cores": 2.0, "run_queue": 5.1, "cpu_pressure_pct": 40.0}, None),
        ({"run_queue": 9.0}, None),
    ],
)
def test_no_free_core_if_all_are_busy_and_tasks_wait(host: dict[str, float], clause: str | None) -> None:
    assert HostLoad(host, {}, 9).without_a_free_core() == clause
