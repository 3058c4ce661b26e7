"""The text of a trace: cut into blocks at event borders, decoded, and repaired if damaged.

Files that are not traces are refused.
"""
