"""Jobs of more ranks than one machine reads: each rank summarised where its trace lies, the summaries reduced on one node."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "batch": ("gather", "is_whole"),
        "mapping": ("Engine", "Mapped", "Outcome", "map_sources", "summary_name"),
        "of_rank": ("Row", "rank_rows", "refusal_row", "telemetry_rows"),
        "overview": ("of_whole_job",),
        "places": ("Source", "list_sources", "parent_of", "place_of"),
        "ray_tasks": ("on_ray",),
        "reduction": ("JobOverview", "overview_of"),
        "stages": ("unequal",),
        "summary": ("pack",),
        "tables": ("NOT_HERE", "JobTables"),
        "workers": ("in_processes",),
    },
)
