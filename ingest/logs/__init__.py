"""Logs that a training writes line by line: step marks, and torch.compile's structured log."""
