"""`sawtooth try`: what it does inside a training, and how it starts and ends one.

Inside the training it applies a change, proves its effect, and keeps the training's files as they are.
"""
