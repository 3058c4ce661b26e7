"""What is known before any trace is read: GPUs' peaks, kernel names, dtypes, FLOPs, bytes; who can own a nanosecond, and why one is lost.

Tables with a source in every row, and the arithmetic on them. Nothing here knows a run.
"""
