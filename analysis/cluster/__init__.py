"""Jobs with more ranks than one machine can read: one summary per rank, reduced on one node.

A rank is summarised where its trace is stored.
"""
