"""What there is to record, in the order it was made: the first set is what the analysis was written with, the others judge it (docs/evidence/accuracy.md)."""
