"""Stragglers: which ranks are late, by how much and why, from replays or by comparison with peers."""
