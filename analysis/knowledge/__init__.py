"""Knowledge that needs no trace: GPU peaks, kernel names, dtypes, FLOPs, bytes, owners and causes.

Tables with a source in every row, and the arithmetic on them. No module here knows a run.
"""
