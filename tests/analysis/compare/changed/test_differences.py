"""Tests of the changes between two runs: each once, with its share of the step's change."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from sawtooth.analysis.compare.changed import setup_traits
from sawtooth.analysis.compare.changed.differences import PADDING, differences, effects, was_not_followed
from sawtooth.analysis.compare.changed.setup_traits import ReadBack, Trait
from sawtooth.analysis.compare.waterfall import RunRow
from sawtooth.analysis.findings.checking import all_rules
from sawtooth.analysis.run.model import Explains, Finding
from tests.support.actions import act
from tests.support.run_results import run_of


def trait(key, value, explains=()):
    return Trait(key, key, value, explains)


def advised(rule, severity="critical", sets=()):
    explains = Explains(sets=sets)
    return Finding(
        rule, severity, f"{rule} costs", act("Change it."), "high", 5.0, 90.0, predicted_speedup=1.1, explains=explains
    )


def row(owner, cause, a, b):
    return RunRow(owner, cause, Fraction(a), Fraction(b))


def test_a_visible_change_comes_before_advice_that_is_no_longer_needed():
    a = (trait("loader", "inline"), trait("graph", "off"), trait("only here", "1"))
    b = (trait("loader", "8 workers"), trait("graph", "off"))
    advice = [advised("starves", sets=("loader",)), advised("reads"), advised("casts", "info")]
    found = differences(a, b, advice, advice)
    assert [(d.key, d.a, d.b) for d in found] == [("loader", "inline", "8 workers"), ("reads", None, None)]
    assert found[0].rules == ("starves",)


def test_advice_to_make_the_change_is_not_a_separate_difference():
    slow, fast, advice = (trait("dtype", "FP32"),), (trait("dtype", "bf16"),), [advised("products", sets=("dtype bf16",))]
    there, back = differences(slow, fast, advice, advice), differences(fast, slow, advice, advice, of_b=True)
    assert [(d.key, d.a, d.b, d.rules) for d in there] == [("dtype", "FP32", "bf16", ("products",))]
    assert [(d.key, d.b, d.a, d.rules) for d in back] == [("dtype", "FP32", "bf16", ("products",))]


def test_advice_was_not_followed_if_both_sides_have_the_same_choice():
    off, on = trait("graph", "off"), trait("graph", "on")
    graph = advised("launch-bound", sets=("graph",))
    assert was_not_followed(graph, (off,), (off,))
    assert not was_not_followed(graph, (off,), (on,))
    assert not was_not_followed(graph, (), (off,)), "what one side does not show may have been another"
    assert not was_not_followed(advised("reads"), (off,), (off,)), "advice that no choice shows"
    workers = trait("loader", "in worker processes")  # The number is not recorded.
    assert not was_not_followed(advised("starves", sets=("loader",)), (workers,), (workers,))


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        ("multi_tensor_apply_kernel<TensorListMetadata<3>, PointwiseOpScalarFunctor<float, 3, 3, 0>, std::divides<float> >", "foreach"),
        ("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAMW> >", "fused"),
        ("vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)::{lambda()#2}>", "one tensor at a time"),
        ("multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float, NormType::L2> >", None),
    ],
)  # fmt: skip
def test_kernels_alone_show_the_optimizer_of_a_captured_step(kernel, value):
    """A CUDA graph and an Nsight export have no operators. The norms are those of gradient clipping."""
    optimizer = next(choice for choice in setup_traits._CHOICES if choice.key == "optimizer")
    assert next((shown for shown, pattern in optimizer.values if re.search(pattern, kernel)), None) == value


def test_a_number_unknown_on_one_side_is_not_a_difference():
    known = Trait("loader", "loader", "in 4 worker processes", kind="in worker processes", amount=4)
    unknown = trait("loader", "in worker processes")
    assert differences((known,), (unknown,), [], []) == differences((unknown,), (known,), [], []) == ()
    eight = Trait("loader", "loader", "in 8 worker processes", kind="in worker processes", amount=8)
    assert [(d.a, d.b) for d in differences((known,), (eight,), [], [])] == [("in 4 worker processes", "in 8 worker processes")]
    reads = [Trait("reads", "reads", f"{count:.0f} per step", kind="in most steps", amount=count) for count in (5.4, 5.6)]
    assert differences(reads[:1], reads[1:], [], []) == ()


@pytest.mark.parametrize(
    ("copies", "value", "kind"),
    [
        (ReadBack(1.0, 1, 3), "in 1 of 3 steps", "now and then, or never"),  # Three at once.
        (ReadBack(64.0, 3, 3), "64 per step", "in most steps"),
        (ReadBack(0.75, 3, 4), "in most steps", "in most steps"),
        (ReadBack(0.0, 0, 3), "none", "now and then, or never"),
    ],
)
def test_copies_to_the_host_are_counted_by_the_steps_that_have_one(copies, value, kind):
    reads = next(trait for trait in setup_traits.traits_of(run_of(), None, copies) if trait.key == "reads")
    assert (reads.value, reads.kind) == (value, kind)


def test_a_share_refers_to_the_parts_that_changed_with_the_step():
    # 100 → 40 ms: the loader saves 48 of the 60 ms and the launches 15. Copies add 3 ms.
    waterfall = (
        row("idle", "data_wait", 50, 2),
        row("idle", "launch_bound", 20, 5),
        row("exposed_memcpy", None, 0, 3),
        row("other_compute", None, 30, 30),
    )
    found = differences(
        (trait("loader", "inline", ("data_wait",)), trait("graph", "off", ("launch_bound",)), trait("dtype", "FP32")),
        (trait("loader", "8", ("data_wait",)), trait("graph", "on", ("launch_bound",)), trait("dtype", "bf16")),
        [],
        [],
    )
    shown = effects(found, waterfall)
    assert [[d.key for d in effect.differences] for effect in shown] == [["loader"], ["graph"], ["dtype"]]
    assert [effect.share for effect in shown] == [pytest.approx(48 / 60), pytest.approx(15 / 60), None]
    assert [part.cause for part in shown[0].parts] == ["data_wait"]


def test_differences_that_act_on_one_part_explain_it_together():
    waterfall = (row("other_compute", None, 80, 30), row("idle", "data_wait", 20, 10))
    found = differences(
        (
            trait("compile", "off", ("other_compute",)),
            trait("loader", "a", ("data_wait",)),
            trait("optimizer", "foreach", ("other_compute",)),
        ),
        (
            trait("compile", "on", ("other_compute",)),
            trait("loader", "b", ("data_wait",)),
            trait("optimizer", "fused", ("other_compute",)),
        ),
        [],
        [],
    )
    shown = effects(found, waterfall)
    assert [[d.key for d in effect.differences] for effect in shown] == [["compile", "optimizer"], ["loader"]]
    assert sum(effect.share for effect in shown) == pytest.approx(1.0)


def test_without_a_change_nothing_is_explained():
    found = differences((trait("graph", "off", ("idle",)),), (trait("graph", "on", ("idle",)),), [], [])
    assert [effect.share for effect in effects(found, (row("idle", None, 5, 5),))] == [None]


def test_every_setting_in_the_advice_of_a_rule_is_a_known_choice():
    keys = {choice.key for choice in setup_traits._CHOICES} | {
        "reads",
        "dtype",
        "gradient_sync",
        "micro_batches",
        "schedule",
        PADDING,
    }
    dtypes = {"TF32", *(name for _, name in setup_traits._OTHER_DTYPES)}
    named = [text for rule in all_rules() for text in rule.explains.sets]
    assert named and all(text in keys or text.removeprefix("dtype ") in dtypes for text in named)
