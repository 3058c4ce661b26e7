"""Reading the store: one locked-down engine for all recordings, and a viewer's own SQL in a process of its own."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "calibration": (
            "calibrated",
            "dispatch_of",
            "keep",
        ),
        "library": (
            "Library",
            "Recording",
        ),
        "rank_causes": (
            "CausePieces",
            "RankCauses",
        ),
        "rank_view": ("RankView",),
        "recording_row": (
            "RecordingRow",
            "row_of",
        ),
        "sql": (
            "QueryResult",
            "ROWS_MOST",
            "SECONDS_MOST",
            "SQL_CHARACTERS_MOST",
            "run_query",
        ),
        "sql_examples": ("EXAMPLES",),
    },
)
