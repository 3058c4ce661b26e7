"""Quantiles of Student's t and of the normal distribution; SciPy is loaded with the first, since a command that asks none need not wait for it."""

from __future__ import annotations

from statistics import NormalDist

MAD_TO_SIGMA = 1.4826  # the standard deviation of a normal distribution, from its median absolute deviation


def student_t(freedom: float, share: float) -> float:
    """Return what a t-distributed number with ``freedom`` degrees (above 0) stays below with probability ``share``, 0 < share < 1."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def normal(share: float) -> float:
    """Return what a standard normal number stays below with probability ``share``."""
    return NormalDist().inv_cdf(share)
