"""Several ranks of one job: whose clock is whose, which collectives belong together, what the job's step takes, and who makes it longer."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "absent": (
            "absent",
            "absent_note",
        ),
        "as_recorded": ("RecordedJob",),
        "beside": (
            "Shape",
            "kernels_of",
        ),
        "clocks": ("RankClock",),
        "collectives": (
            "load",
            "step_labels",
        ),
        "communication": (
            "collective_table",
            "side_by_side",
            "split_communication",
        ),
        "groups": (
            "Place",
            "group_uses",
            "with_parallelism",
        ),
        "heat": (
            "Level",
            "pooled",
            "rank_steps",
            "waits_between",
        ),
        "job": (
            "as_one_job",
            "one_step",
            "peers",
        ),
        "job_step": (
            "at_job_step",
            "leading",
            "measured_ms",
            "own_works",
        ),
        "matching": ("match_rows",),
        "pipeline": (
            "pipeline_of",
            "shortest_ms",
            "stages_of",
        ),
    },
)
