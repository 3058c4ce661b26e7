"""Quantiles of Student's t and of the normal distribution.

SciPy is imported inside the function that needs it, because its import is slow and most commands do not need it.
"""

from __future__ import annotations

from statistics import NormalDist

CONFIDENCE = 0.9  # The intervals of measured values are 90 % intervals in the whole project.
NORMAL_90 = 1.645  # Half-width of a 90 % interval in standard errors, for normally distributed values.
MAD_TO_SIGMA = 1.4826  # Ratio of standard deviation to median absolute deviation for normally distributed values.


def student_t(freedom: float, share: float) -> float:
    """Return the Student's t quantile with ``freedom`` degrees (above 0) for 0 < ``share`` < 1."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def normal(share: float) -> float:
    """Return the quantile of the standard normal distribution for probability ``share``."""
    return NormalDist().inv_cdf(share)
