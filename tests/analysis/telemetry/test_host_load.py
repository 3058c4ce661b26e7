"""What holds loader workers up, by the cores that the training may use."""

from __future__ import annotations

import pytest

from sawtooth.analysis.telemetry.host import HostLoad

WORKERS = {"workers": 8.0, "workers_cpu_pct": 85.0, "cores": 8.0}


@pytest.mark.parametrize(
    ("cores", "limit"),
    [
        ({"cpu_pct": 48.0, "cpu_usable_pct": 96.0}, "cores"),  # eight of sixteen cores are all it has, and they are full
        ({"cpu_pct": 95.0, "cpu_usable_pct": 60.0}, "worker"),  # others fill the rest of the host
        ({"cpu_pct": 96.0}, "cores"),  # a recording of before, or a container's limit
        ({}, None),
    ],
)
def test_full_cores_are_those_that_the_training_may_use(cores: dict[str, float], limit: str | None) -> None:
    assert HostLoad(WORKERS | cores, {}, 9).limit_of_loader() == limit
