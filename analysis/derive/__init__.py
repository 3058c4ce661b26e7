"""A recording's derived file: steps, classes of operations, operators, modules and the sums that pages need.

Made once per recording after ingest; a cache, never a source. ``lost`` says who owned each nanosecond, ``unprofiled`` takes the profiler's cost off.
"""
