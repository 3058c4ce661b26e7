"""`sawtooth attach PID`: a training that already runs is recorded. Its processes found, the hook injected and removed, or the process watched from outside."""
