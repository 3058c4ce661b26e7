"""Tests of the kernels and operators of two runs that are matched with each other."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.compare.matching import PerStepWork, match

names = st.sampled_from(["k1", "k2", "k3", "k4"])
pieces = st.lists(
    st.builds(
        PerStepWork,
        names,
        st.sampled_from(["", "aten::mm", "aten::add", "triton"]),
        st.sampled_from(["", "[[1]]", "[[2]]"]),
        st.sampled_from(["", "gemm", "elementwise"]),
        st.integers(0, 10**9).map(lambda ns: Fraction(ns, 7)),
        st.integers(1, 100).map(lambda n: Fraction(n, 7)),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(pieces, pieces)
def test_every_piece_of_either_side_is_in_exactly_one_row(a, b):
    there, back = match(a, b), match(b, a)
    assert sum(r.ns_a for r in there) == sum(p.ns for p in a)
    assert sum(r.ns_b for r in there) == sum(p.ns for p in b)
    assert sum(r.count_a for r in there) == sum(p.count for p in a)
    mirrored = {"only_a": "only_b", "only_b": "only_a"}
    assert sorted((r.how, r.label, r.ns_a, r.ns_b) for r in there) == sorted(
        (mirrored.get(r.how, r.how), r.label, r.ns_b, r.ns_a) for r in back
    )
    assert all(r.change_ns == 0 and r.how == "name" for r in match(a, a))


def piece(name, operator, shapes, ns, category="gemm"):
    return PerStepWork(name, operator, shapes, category, Fraction(ns), Fraction(1))


def test_kernels_are_matched_through_renames_fusions_and_changed_shapes():
    a = [
        piece("same", "aten::mm", "[[1]]", 10),
        piece("sgemm", "aten::mm", "[[8,8]]", 100),  # The same operator and shapes run another kernel.
        piece("attention_fwd", "aten::bmm", "[[4]]", 50),  # The batch is twice as large.
        piece("mul", "aten::mul", "[[2]]", 7, "elementwise"),  # Fused with add.
        piece("add", "aten::add", "[[2]]", 8, "elementwise"),
        piece("gone", "aten::item", "[]", 3, "memcpy"),
    ]
    b = [
        piece("same", "aten::linear", "[[9]]", 11),
        piece("bf16gemm", "aten::mm", "[[8,8]]", 20),
        piece("attention_big", "aten::bmm", "[[8]]", 90),
        piece("triton_mul_add", "triton_fused", "", 9, "elementwise"),
        piece("new", "aten::cat", "[]", 2, "copy"),
    ]
    found = {(r.how, r.names_a, r.names_b): (int(r.ns_a), int(r.ns_b)) for r in match(a, b)}
    assert found == {
        ("name", ("same",), ("same",)): (10, 11),
        ("operator_and_shape", ("sgemm",), ("bf16gemm",)): (100, 20),
        ("operator", ("attention_fwd",), ("attention_big",)): (50, 90),
        ("category", ("add", "mul"), ("triton_mul_add",)): (15, 9),
        ("only_a", ("gone",), ()): (3, 0),
        ("only_b", (), ("new",)): (0, 2),
    }
