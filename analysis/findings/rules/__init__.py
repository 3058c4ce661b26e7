"""One file per rule; each yields findings with evidence, the change as code and the predicted step time."""
