"""A recording a stretch of steps at a time: what is derived of millions of events never lies in memory as a whole."""
