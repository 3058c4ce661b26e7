"""Detection of the loop in a program whose optimizer never steps.

The signs of a step are backward passes, calls of the outermost module and batches of a loader.
"""
