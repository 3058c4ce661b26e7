"""The list of runs: what a card says of each, and finding and ordering them."""
