"""What a training writes beside its traces: step marks, compile logs, memory snapshots."""
