"""What a rule declares of itself."""

from __future__ import annotations

from typing import Literal, get_args

# What was recorded, by the parts that can be missing or wrong by themselves.
Source = Literal[
    "gpu_records",  # kernels, copies and fills with their times
    "launch_links",  # which call of the host launched which of them
    "host_records",  # operators and runtime calls
    "steps",  # where each step begins and ends
    "shapes",  # sizes and dtypes of operators' inputs
    "python_stacks",  # Python calls
    "allocations",  # what the allocator gave out and took back, and peaks of it
    "gpu_peaks",  # what the hardware table says of this GPU; what is read is the work that a kernel did in its time
    "other_ranks",  # the traces of the job's other ranks
    "telemetry",  # samples of the GPU
    "host_telemetry",  # samples of the host
    "loader_timing",  # what was timed and counted of the data loader
    "compile_log",  # the log of torch.compile
]
SOURCES: frozenset[Source] = frozenset(get_args(Source))
OF_TRACE: frozenset[Source] = frozenset({"gpu_records", "launch_links", "host_records", "steps"})  # what idle time is told from
