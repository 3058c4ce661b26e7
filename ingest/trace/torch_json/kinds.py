"""Map the categories of events to kinds, for all profilers since 2021."""

from __future__ import annotations

import re

# The kind of events by their category in lower case.
KINDS = {
    "cpu_op": "op",
    "operator": "operator",
    "user_annotation": "annotation",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "hip_runtime": "call",
    "hip_driver": "call",
    "mtia_runtime": "call",
    "xpu_runtime": "call",
    "xpu_driver": "call",
    "glow_runtime": "call",
    "privateuse1_runtime": "call",
    "privateuse1_driver": "call",
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "python function": "python",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "overhead": "overhead",
}
EDGE_KINDS = ("op", "annotation", "call", "python")  # Other tools may write these kinds as begin and end events ('B', 'E').
# Matches annotations that had the category of operators before 2022.
MARKER = re.compile(r"ProfilerStep[#*]|Optimizer\.(?:step|zero_grad)#")
