"""Sessions of samplers while they grow: samples, diagnosis, sentences, and how they become runs."""
