"""Quantiles are SciPy's, without loading SciPy."""

from __future__ import annotations

import pytest

from sawtooth.analysis.quantiles import normal, student_t

SHARES = (0.005, 0.1, 0.49, 0.5, 0.75, 0.95, 0.975, 0.9995)


@pytest.mark.parametrize("freedom", [0.5, 1, 1.7, 2, 3, 7.3, 12, 29, 57.25, 400, 1000])
@pytest.mark.parametrize("share", SHARES)
def test_students_t_is_that_of_scipy(freedom: float, share: float) -> None:
    from scipy.special import stdtrit

    assert student_t(freedom, share) == pytest.approx(float(stdtrit(freedom, share)), rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("share", SHARES)
def test_with_many_degrees_students_t_is_nearly_the_normal_distribution(share: float) -> None:
    assert student_t(1e6, share) == pytest.approx(normal(share), rel=1e-5, abs=1e-14)


def test_one_and_two_degrees_have_closed_forms() -> None:
    assert student_t(1, 0.75) == pytest.approx(1.0, rel=1e-13)  # tan(π / 4)
    assert student_t(2, 0.75) == pytest.approx(
        (2 / 3) ** 0.5, rel=1e-13
    )  # a ÷ √(2·p·(1 − p)) with a = 2p − 1, p = 0.75: 0.5 ÷ √0.375


@pytest.mark.parametrize("share", SHARES)
def test_the_normal_distribution_is_that_of_scipy(share: float) -> None:
    from scipy.special import ndtri

    assert normal(share) == pytest.approx(float(ndtri(share)), rel=1e-13, abs=1e-15)
