"""Tests of mapping a job with Ray: after a kill, every source is still read only once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawtooth.analysis.cluster.mapping import map_sources
from sawtooth.analysis.cluster.ray_tasks import MAX_RETRIES, on_ray
from sawtooth.ingest.errors import UsageError
from tests.support import cluster_tasks


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a Ray cluster of two nodes with one core each, on this machine."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'sawtooth[cluster]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_source_of_a_killed_worker_is_tried_again_and_a_second_run_reads_nothing(tmp_path: Path, address: str) -> None:
    traces, to = tmp_path / "traces", tmp_path / "summaries"
    traces.mkdir()
    names = ["a.json", "b.once.json", "c.json", "d.always.json", "e.json"]
    for name in names:
        (traces / name).write_text(name)
    engine = functools.partial(on_ray, address=address)
    done = map_sources([str(traces)], str(to), cluster_tasks.die_at_first, engine)
    failed = {Path(outcome.url).name for outcome in done.failed}
    assert failed == {"d.always.json"}
    assert {name: len((tmp_path / f"{name}.tries").read_text()) for name in names} == {
        "a.json": 1, "b.once.json": 2, "c.json": 1, "d.always.json": 1 + MAX_RETRIES, "e.json": 1
    }  # fmt: skip
    assert sorted(path.read_text() for path in to.iterdir()) == ["a.json", "b.once.json", "c.json", "e.json"]
    (traces / "d.always.json").unlink()
    again = map_sources([str(traces)], str(to), cluster_tasks.read, engine)
    assert (again.before, again.outcomes) == (4, [])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (None, "Ray did not start on this machine: The node timed out."),
        ("10.0.0.1:6379", "There is no Ray cluster at 10.0.0.1:6379"),
    ],
)
def test_a_cluster_that_does_not_start_is_not_reported_as_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, said: str
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'sawtooth[cluster]'")

    def times_out(**_: object) -> None:
        raise Exception("The node timed out.")

    monkeypatch.setattr(ray, "init", times_out)
    with pytest.raises(UsageError, match=said):
        next(on_ray(cluster_tasks.die_at_first, [], str(tmp_path), address))
