"""Sampler sessions while they grow: their data, series and sentences, and how they become runs."""
