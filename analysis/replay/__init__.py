"""What would happen if: a recorded run as a small machine whose parts can be changed and run again."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "bisection": ("turning_point",),
        "edits": (
            "AsGraph",
            "Edit",
            "FasterHost",
            "MoreLaunches",
            "ScaledOps",
            "TimedOps",
            "WithoutCalls",
            "WithoutHostCause",
            "WithoutOps",
            "WithoutWaits",
            "apply",
        ),
        "machine": (
            "DeviceOps",
            "HostNodes",
            "I32",
            "I64",
            "NEVER",
            "QUEUE_DEPTH",
            "ReplayProblem",
            "Replayed",
            "queue_slots",
            "replay",
            "step_spans",
            "step_times",
            "stepwise",
            "with_median_latencies",
        ),
        "whatif": ("Edge", "GAIN_OFF", "HOSTS_DIFFER", "RUNS_DIFFER", "STEP_OFF", "TIMES_OFF", "WhatIf"),
    },
)
