"""Sets of scenarios to record, in the order in which they were made.

The analysis was developed with the first set. The other sets test it (docs/evidence/accuracy.md).
"""
