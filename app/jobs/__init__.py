"""Bringing files in: a queue of ingest jobs, the child process that reads them, and the recordings that ship."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "bundled": (
            "SAMPLES",
            "first_pair",
            "import_bundled",
        ),
        "first_answer": ("FirstAnswer",),
        "intake": (
            "KEPT_AS_IT_IS",
            "Brought",
            "bring_in",
            "files_of",
        ),
        "leftovers": (
            "STALE_UPLOAD_SECONDS",
            "sweep",
        ),
        "queue": (
            "Job",
            "Jobs",
        ),
        "rank_summary": ("summarise",),
        "whole_job": ("WholeJob", "bring_in_job"),
    },
)
