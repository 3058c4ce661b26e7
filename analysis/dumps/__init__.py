"""Diagnoses from PyTorch's dumps: hanging collectives, missing ranks, and the use of GPU memory."""
