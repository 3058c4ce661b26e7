"""A recording's derived file: steps, classes of operations, operators, modules and the sums that pages need.

Made once per recording after ingest; a cache, never a source. ``lost`` says who owned each nanosecond, ``unprofiled`` takes the profiler's cost off.
"""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "build": (
            "damaged",
            "ensure_derived",
        ),
        "events": ("names_of", "read_cpu_ops"),
        "host": ("load_host_facts",),
        "layout": ("derived_layout", "events_of"),
        "modules": ("forward_operators",),
        "operators": ("innermost", "nearest"),
        "sums": ("ensure_sums", "sums_file"),
        "host_only": ("LOADS_INLINE", "LOADS_IN_WORKERS"),
    },
)
