"""Read files that a training writes beside its traces: step marks, compile logs, memory snapshots."""
