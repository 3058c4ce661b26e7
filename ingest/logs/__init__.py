"""What a training writes of itself, line by line: the marks of its loop, and torch.compile's structured log."""
