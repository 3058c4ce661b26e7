"""Facts: reads traces and telemetry and publishes recordings. Imports nothing from analysis or app."""
