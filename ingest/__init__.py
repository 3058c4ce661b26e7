"""Facts: reads traces and telemetry and publishes recordings. Imports nothing of analysis or app."""
