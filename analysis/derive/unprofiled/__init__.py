"""The recorded run as a problem for the replay, and what it takes without the cost of recording."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "cost": (
            "RecordingCost",
            "recording_cost",
            "without_cause",
            "without_profiler",
        ),
        "problem": (
            "FEWEST_STEPS",
            "HOST_TO_DEVICE",
            "HostView",
            "StepTable",
            "USUAL_EVENTS",
            "build_problem",
            "host_view",
            "recorded_waits",
        ),
        "waits": ("PAGEABLE", "Recorded"),
    },
)
