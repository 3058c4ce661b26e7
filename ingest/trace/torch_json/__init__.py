"""Read traces that torch.profiler writes as JSON, on several cores."""
