"""Recording of programs in which no optimizer steps.

In a loop, backward passes, calls of the outermost module or batches of a loader end the steps. A program without a loop is profiled for some seconds.
"""
