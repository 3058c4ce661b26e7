"""Page parts that list, edit and compare runs, attach telemetry, set clocks and show proposals."""
