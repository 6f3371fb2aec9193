"""The stages and their loop, NT-ASGD, CUDA graphs, checkpoints, run folders and records."""
