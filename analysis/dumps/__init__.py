"""What dumps of PyTorch show: which collective hangs and which ranks are missing, and who holds the GPU's memory."""
