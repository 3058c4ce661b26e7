"""Measured steps of a comparison's runs, made by hand."""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps


def run(steps, best=None, source="profile", name=None, recorded=None):
    """Return a run with these steps in ms. Its step time is ``best``, or the mean of the steps."""
    steps = tuple(float(s) for s in steps)
    mean = sum(steps) / len(steps) if steps else None
    return MeasuredSteps(steps, best if best is not None else mean, source, (name,) if name else (), recorded)


def runs_with_step_times(*values):
    """Return one run for each step time in ms, with 50 equal steps."""
    return [MeasuredSteps((value,) * 50, value, "profile", (f"{value} {i}",)) for i, value in enumerate(values)]


def random_steps(level, n=60, seed=1, sd=0.001):
    """Return ``n`` random step times around ``level``, whose relative standard deviation is ``sd``."""
    return np.random.default_rng(seed).normal(level, level * sd, n)


def bounded(best, low, high, name, source="telemetry", steps=4):
    """Return a run whose step time lies between ``low`` and ``high``."""
    return MeasuredSteps((best,) * steps, best, source, (name,), low_ms=low, high_ms=high)
