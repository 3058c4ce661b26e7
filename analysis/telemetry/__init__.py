"""What GPU telemetry says: its clock, its steady part, the sawtooth, phases, and whether the profile speaks for the run."""
