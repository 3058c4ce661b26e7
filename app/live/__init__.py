"""Sampler sessions while they grow: what they are, their series, their sentences, and how they become runs."""
