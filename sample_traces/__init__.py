"""Sample recordings that ship with Sawtooth, and the scripts that record them."""
