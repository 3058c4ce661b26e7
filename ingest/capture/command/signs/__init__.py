"""Finds the loop of a program whose optimizer never steps: by backward passes, calls of its outermost module or batches of its loader."""
