"""Sample recordings that ship with Sawtooth, and the script that records them."""
