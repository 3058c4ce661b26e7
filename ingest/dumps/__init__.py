"""Dumps that PyTorch writes beside traces: NCCL's flight recorder and snapshots of the CUDA allocator."""
