"""Jobs of more ranks than one machine reads: each rank summarised where its trace lies, the summaries reduced on one node."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "mapping": ("Engine", "Mapped", "Outcome", "map_sources", "summary_name"),
        "of_rank": ("Row", "rank_rows", "refusal_row", "telemetry_rows"),
        "places": ("Source", "list_sources", "parent_of", "place_of"),
        "ray_tasks": ("on_ray",),
        "summary": ("pack",),
        "workers": ("in_processes",),
    },
)
