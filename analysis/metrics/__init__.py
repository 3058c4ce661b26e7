"""Every number of the report: its definition, the reading with its trust, and how step time and MFU are chosen and computed."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "device_facts": ("DeviceFacts", "StepEstimate"),
        "feeding": (
            "Feeding",
            "cores_of",
            "feeding",
            "first_read_of",
            "rate_of",
            "sample_cost",
        ),
        "metric": ("Measured",),
        "mfu": ("LOWER_BOUND",),
        "pauses": (
            "Pauses",
            "Profiled",
            "Reason",
            "Round",
            "Span",
            "pauses_of",
            "round_of",
            "seldom",
            "stretches",
            "rounds_beside",
            "with_doubt",
        ),
        "reading": (
            "Reading",
            "Trust",
            "missing",
            "worst",
        ),
        "registry": (
            "ALIASES",
            "CARDS",
            "METRICS",
            "readings_of",
            "readings_without_trace",
            "with_aliases",
        ),
        "step_sources": ("ESTIMATED", "STEP_SOURCES", "StepSource"),
        "step_time": (
            "AGREES_WITHIN",
            "BestStepTime",
            "choose_step_time",
        ),
        "trust": ("Diagnostic",),
        "witness": (
            "SAMPLE_IT",
            "StepWork",
            "Witness",
            "by_user",
            "longer_than_profile",
        ),
    },
)
