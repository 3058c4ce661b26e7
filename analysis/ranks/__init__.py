"""Several ranks of one job: clocks, matched collectives, the job's step time, and stragglers."""
