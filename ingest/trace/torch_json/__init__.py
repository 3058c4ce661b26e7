"""torch.profiler's JSON: blocks, events, columns, interned texts and facts, read on several cores."""
