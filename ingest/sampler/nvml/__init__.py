"""Access to NVML: its calls and their periods, GPM counters, GPU capabilities, lost GPUs and drivers.

The rest of the sampler uses only ``NvmlDriver`` and its readings, and never calls NVML itself.
"""
