"""Traces to the tables of a recording. Each format is a source with a room of its own, which gives tables and facts; ids, nesting and links
are made here for all of them, in bounded memory."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "build": ("store",),
        "registry": (
            "DEFAULT",
            "source_for",
            "sources",
        ),
        "source": (
            "GPU_KINDS",
            "MOST_DEVICES",
            "TABLES",
            "Facts",
            "TraceSource",
            "TraceTables",
        ),
        "spool": (
            "Columns",
            "Spool",
            "Table",
            "slices",
        ),
        "tables": ("EventTables",),
    },
)
