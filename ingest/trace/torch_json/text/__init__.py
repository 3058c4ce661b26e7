"""Cut the text of a trace into blocks at event borders, decode them, and repair damaged events.

The package also has the errors for files that are not traces.
"""
