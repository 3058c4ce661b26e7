"""Tests of the changes that `sawtooth try` chooses from findings and from the training's settings."""

from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.run.model import CodeChange, Finding
from sawtooth.app.trials import choosing
from sawtooth.app.trials.choosing import Candidate, candidates
from sawtooth.ingest.capture.trials.changes import loader
from sawtooth.ingest.manifest import UserFacts
from tests.support.actions import act

LOADER = {"workers": 0, "batch": 16, "pinned": False, "persistent": False, "prefetch": None, "refusal": None}
OPTIMIZER = {"kind": "AdamW", "accepts": ["fused", "foreach"], "foreach": None, "fused": None}
MODEL = {"convolutions": 0, "last": True, "compiled": False}
GPU = {"settings": [{"cuda": True}]}


def found(rule: str, ms: float | None = None, **more: Any) -> Finding:
    more = {"action": act("Do it."), "predicted_low_ms": ms and ms * 0.9, "predicted_high_ms": ms and ms * 1.1} | more
    speedup = 100.0 / ms if ms else None
    return Finding(rule, "warning", "A title", confidence="high", predicted_step_ms=ms, predicted_speedup=speedup, **more)


def chosen(seen: dict[str, Any], *findings: Finding, facts: UserFacts | None = None, numerics: bool = False) -> list[Candidate]:
    """Return the candidates for a run of 100 ms per step.

    The training has the settings and objects of ``seen``.
    """
    result: Any = SimpleNamespace(
        findings=list(findings),
        metrics={"best_step_time_ms": SimpleNamespace(value=100.0)},
        manifest=SimpleNamespace(facts=facts or UserFacts()),
    )
    return candidates(result, [{"seen": seen}], numerics=numerics)


def test_the_largest_certain_gain_comes_first() -> None:
    seen = {**GPU, "optimizer": [OPTIMIZER], "model": [MODEL]}
    listed = chosen(
        seen,
        found("optimizer-not-fused", 90.0),  # at least 1 ms: 90 ms · 1.1 = 99 ms
        found("launch-bound", 50.0, predicted_high_ms=99.5),  # The change gains at least 0.5 ms.
        found("garbage-collection", 80.0),  # at least 12 ms: 80 ms · 1.1 = 88 ms
    )
    assert [item.slug for item in listed] == ["gc-frozen", "gc-every-n-steps", "fused-optimizer", "compile-cuda-graphs"]
    assert (
        listed[2].code == "torch.optim.AdamW(…, fused=True)"
        and listed[3].code == 'model = torch.compile(model, mode="reduce-overhead")'
    )
    assert (listed[0].predicted_ms, listed[0].low_ms, listed[0].high_ms) == (80.0, 72.0, pytest.approx(88.0))


def test_changes_of_results_need_consent_and_gpu_changes_need_a_gpu() -> None:
    tf32 = found("tf32-off", 40.0)
    assert chosen(GPU, tf32)[0].by_hand == choosing.NEEDS_NUMERICS
    assert chosen(GPU, tf32, numerics=True) == [Candidate("tf32", {}, "tf32-off", 40.0, 36.0, pytest.approx(44.0), 60.0)]
    assert chosen({}, tf32, numerics=True)[0].by_hand == choosing.NO_GPU


def test_a_prediction_belongs_to_its_change() -> None:
    # The finding about products predicts bf16. TF32 has its own finding and prediction.
    both = chosen(GPU, found("fp32-products", 20.0), found("tf32-off", 40.0), numerics=True)
    assert {item.slug: item.predicted_ms for item in both} == {"bf16-autocast": 20.0, "tf32": 40.0}
    # A finding with advice about the collate function does not predict the effect of workers.
    facts = UserFacts(loader_cores=4, loader_batch=16, loader_sample_ms=10.0, loader_sample_cpu_ms=10.0, loader_workers=0)
    (workers,) = chosen({"loader": [LOADER]}, found("data-loader-starves-gpu", 60.0), facts=facts)
    assert workers.slug == loader.WORKERS and workers.predicted_ms is None and workers.values["workers"] >= 2


def test_the_advised_number_of_workers_is_tried() -> None:
    starved = found("data-loader-starves-gpu", 30.0, changes=(CodeChange("PyTorch", "", "num_workers=6", of_run=True),))
    (workers,) = chosen({"loader": [LOADER]}, starved)
    assert (workers.values, workers.predicted_ms) == ({"workers": 6}, 30.0)
    assert workers.code == "DataLoader(…, num_workers=6)"


@pytest.mark.parametrize(
    ("cores", "workers"),
    # A sample waits for 20 ms and computes nothing: each worker adds its rate, and four can share a core.
    # 90 % of the best rate is reached by 90 % of the workers, rounded up.
    [(1, 4), (2, 8), (4, 15)],
)
def test_workers_without_advice_are_the_fewest_that_load_almost_as_fast_as_possible(cores: int, workers: int) -> None:
    facts = UserFacts(loader_cores=cores, loader_batch=4, loader_sample_ms=20.0, loader_sample_cpu_ms=0.0, loader_workers=0)
    (one,) = chosen({"loader": [LOADER]}, facts=facts)
    assert one.values == {"workers": workers} and one.ceiling_ms == 80.0


def test_workers_are_not_tried_if_loading_takes_under_5_percent() -> None:
    facts = UserFacts(loader_cores=2, loader_batch=4, loader_sample_ms=1.2, loader_sample_cpu_ms=0.0, loader_workers=0)
    assert chosen({"loader": [LOADER]}, facts=facts) == []  # 4.8 ms of 100 ms


@pytest.mark.parametrize(
    ("seen", "rule", "why"),
    [
        ({"loader": [LOADER | {"refusal": loader.ITERABLE}]}, "data-loader-starves-gpu", loader.ITERABLE),
        ({}, "batch-norm", "This change must be made in the code: Do it."),
    ],
)
def test_changes_that_are_impossible_from_inside_have_a_reason(seen: dict[str, Any], rule: str, why: str) -> None:
    (one,) = chosen(seen, found(rule, 50.0))
    assert one.by_hand == why and one.predicted_ms == 50.0


def test_changes_that_the_training_already_has_are_not_tried() -> None:
    seen = {**GPU, "optimizer": [OPTIMIZER | {"fused": True}], "model": [MODEL | {"compiled": True}]}
    listed = chosen(seen, found("optimizer-not-fused", 90.0), found("launch-bound", 50.0))
    assert [(item.slug, item.by_hand != "") for item in listed] == [("launch-bound", True), ("optimizer-not-fused", True)]


def test_optimizers_that_update_one_by_one_are_tried_without_a_finding() -> None:
    seen = {"optimizer": [OPTIMIZER | {"foreach": False, "fused": False}], "update": [{"way": "_single_tensor_adamw"}]}
    assert [item.slug for item in chosen(seen)] == ["fused-optimizer", "foreach-optimizer"]
    seen = {"optimizer": [OPTIMIZER], "update": [{"way": "_multi_tensor_adamw"}]}
    assert chosen(seen) == []
    # On a GPU, foreach is PyTorch's default.
    fused, *others = chosen(seen, found("optimizer-not-fused", 90.0), found("optimizer-foreach", 95.0))
    assert fused.slug == "fused-optimizer" and [item.slug for item in others if not item.by_hand] == []


def test_gradient_views_are_tried_for_ddp_without_them() -> None:
    ddp = {"bucket_mb": 25.0, "views": False, "static": False}
    assert [item.slug for item in chosen({"ddp": [ddp]})] == ["ddp-gradient-views"]
    assert chosen({"ddp": [ddp | {"views": True}]}) == []


def test_a_larger_batch_doubles_the_largest_one() -> None:
    (one,) = chosen({"loader": [LOADER, LOADER | {"batch": 24}]}, found("small-batch"), numerics=True)
    assert one.values == {"times": 2.0, "batch": 48.0} and one.code == "DataLoader(…, batch_size=48)"
