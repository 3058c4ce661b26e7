"""Search for the largest batch that fits, and timing of each size. The training's state is restored."""
