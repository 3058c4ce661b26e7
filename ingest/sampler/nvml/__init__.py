"""Asking NVML: the calls and how often each is worth its cost, GPM's counters, what one GPU can tell, and what to do when it or the driver is lost.

The rest of the sampler knows a ``NvmlDriver`` and its readings, and no call of NVML.
"""
