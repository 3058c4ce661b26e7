"""Whether a change is more than noise: each run's step time with its interval, the interval of the change, and the words for it."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "certainty": ("OTHER_MODEL", "OTHER_PROGRAM", "Verdict", "of_one_command", "of_other_work"),
        "change_interval": ("RUN_TO_RUN", "ratio_interval"),
        "decision": ("MIN_RUNS_AS_UNIT", "verdict"),
        "measured": ("Measured", "mean_of_all"),
    },
)
