"""The derived file of a recording: steps, operation classes, operators, modules and sums for pages.

It is computed once per recording after ingest. It is a cache and can always be rebuilt from the recording.
``lost`` assigns an owner to each nanosecond. ``unprofiled`` removes the profiler's cost.
"""
