"""Tests of names in sentences: a C++ signature of two lines is shortened to its function."""

from __future__ import annotations

import pytest

from sawtooth.analysis.derive.lost.sentences import readable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::addmm", "aten::addmm"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
            "vectorized_elementwise_kernel",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::X>(Y)",
            "multi_tensor_apply_kernel",
        ),
        ("x" * 200, "x" * 79 + "…"),
        ("<" * 100, "<" * 79 + "…"),
        ("::<" * 30, "::<" * 26 + ":…"),
        (
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    ],
)
def test_a_long_signature_is_shortened_to_its_function(name: str, shown: str) -> None:
    assert readable(name) == shown
