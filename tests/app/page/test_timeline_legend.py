"""Tests of the Timeline's legend: it names the colours of lost time and of work in the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.app.page import frame
from sawtooth.app.page.timeline import picture
from tests.support.run_results import run_of

LEDGER = [
    ("exposed_memcpy", "host_sync", 900, 0.9), ("other_compute", None, 800, 0.8), ("exposed_memcpy", "unattributed", 700, 0.7),
    ("tensor_core_compute", None, 600, 0.6), ("idle", "launch_latency", 500, 0.5), ("idle", "python_host", 400, 0.4),
    ("idle", "launch_bound", 300, 0.3), ("memset", None, 200, 0.2), ("idle", "allocator", 0, 0.1),
]  # fmt: skip


def labels(run: RunResult) -> list[str]:
    return [entry.label for entry in picture.legend(run, run.lead)]


def test_the_legend_names_every_drawn_colour_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "is_dark", lambda: False)
    names = labels(run_of(ledger=LEDGER))
    assert names == [
        "Lost time", "host waits for a result (sync)", "copy not overlapped", "gaps between kernels", "Python on the host", "kernel launches",
        "GPU streams", "copy", "other compute", "tensor-core compute", "memset",
        "Host", "annotation", "operator", "launch call", "other runtime call",  # The colour of its waits is above.
    ]  # fmt: skip
    assert picture.legend(run_of(ledger=LEDGER), None) == ()
    assert (
        labels(run_of(ledger=[("other_compute", None, 900, 0.9)]))[-1] == "waits for the GPU"
    )  # No lost time has this colour.
    other = run_of("b" * 16, ledger=[("idle", "data_wait", 900, 0.9), ("other_compute", None, 900, 0.9)]).lead
    job = run_of(ledger=LEDGER)
    both = replace(job, ranks=[*job.ranks, other])
    assert "data loader" in [entry.label for entry in picture.legend(both, both.lead, all_ranks_shown=True)]
    assert [entry.label for entry in picture.legend(both, both.lead)] == names
    sliver = [*LEDGER, ("idle", "data_wait", 4, 0.004)]
    assert labels(run_of(ledger=sliver)) == names
