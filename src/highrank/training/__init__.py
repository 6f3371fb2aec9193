"""The loop, NT-ASGD, checkpoints and run folders."""
