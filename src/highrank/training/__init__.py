"""Training in memory: one update, CUDA graphs, optimisers with averaging, stages and the loop."""
