"""Triton kernels for CUDA: one loop over tiles of votes that every routing shares (see README.md)."""
