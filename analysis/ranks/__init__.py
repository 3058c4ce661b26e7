"""Several ranks of one job: whose clock is whose, which collectives belong together, what the job's step takes, and who makes it longer."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "beside": (
            "Shape",
            "held_ms",
            "kernels_of",
        ),
        "collectives": (
            "load",
            "step_labels",
        ),
        "communication": (
            "collective_table",
            "side_by_side",
            "split_communication",
        ),
        "coupled": ("Member",),
        "job": (
            "as_one_job",
            "replay_of",
        ),
        "job_step": (
            "at_job_step",
            "leading",
            "measured_ms",
        ),
        "lateness": (
            "who",
            "why",
        ),
        "own_time": (
            "OwnTime",
            "Part",
            "own_time",
        ),
    },
)
