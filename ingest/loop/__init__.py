"""What the recorder beside a training and the analysis afterwards know alike of a training loop. Standard library only: it is part of the recorder."""
