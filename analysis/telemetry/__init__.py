"""GPU telemetry: clock, steady part, sawtooth, phases, and whether the profile is representative."""
