"""The text of a trace: cut into blocks at event borders, decoded, and repaired if damaged.

It also has the errors for files that are not traces.
"""
