"""torch.profiler's JSON: blocks, events, columns, interned texts, and what the trace says of itself, on several cores."""
