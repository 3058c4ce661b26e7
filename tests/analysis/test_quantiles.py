"""Tests of quantiles of Student's t and the normal distribution, against closed forms."""

from __future__ import annotations

import pytest

from sawtooth.analysis.quantiles import normal, student_t


def test_one_and_two_degrees_have_closed_forms() -> None:
    assert student_t(1, 0.75) == pytest.approx(1.0, rel=1e-13)  # Tan(π / 4).
    assert student_t(2, 0.75) == pytest.approx((2 / 3) ** 0.5, rel=1e-13)  # a ÷ √(2·p·(1 − p)) with a = 2p − 1, p = 0.75


@pytest.mark.parametrize("share", [0.005, 0.1, 0.49, 0.5, 0.75, 0.95, 0.975, 0.9995])
def test_with_many_degrees_students_t_is_nearly_the_normal_distribution(share: float) -> None:
    assert student_t(1e6, share) == pytest.approx(normal(share), rel=1e-5, abs=1e-14)


def test_the_normal_distribution_matches_its_tables() -> None:
    assert (normal(0.975), normal(0.5), normal(0.1)) == pytest.approx((1.959964, 0.0, -1.281552), abs=1e-6)
