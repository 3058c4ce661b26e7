"""What GPU telemetry says: its clock, its steady part, the sawtooth, phases, and whether the profile speaks for the run."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "alignment": (
            "Alignment",
            "align_recordings",
            "zones_that_fit",
        ),
        "attribution": (
            "TraceDevice",
            "attribute",
            "metadata_of",
            "process_ids",
        ),
        "clock": (
            "AS_RECORDED",
            "Origin",
            "SampleClock",
            "origin_of",
        ),
        "host": (
            "CORES_FULL_PCT",
            "HostLoad",
            "Limit",
        ),
        "job_law": ("Worker", "by_utilization"),
        "of_run": (
            "RunTelemetry",
            "elsewhere",
        ),
        "phases": ("ThrottleBand",),
        "profile_fit": (
            "Representativeness",
            "SHORT_KERNEL_NS",
            "judge_profile",
        ),
        "series": (
            "DRAWN",
            "Telemetry",
            "facts",
            "line",
            "one_tooth",
        ),
        "sparkline": ("SPARKLINE_SECONDS", "recent_utilization"),
        "summary": (
            "ACTIVITY",
            "Activity",
            "DeviceTelemetry",
            "FAINT",
            "SHARES_AT_WORK",
            "summarize",
        ),
        "troughs": (
            "Troughs",
            "link",
        ),
    },
)
