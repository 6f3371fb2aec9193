"""Perplexity, as it stands and as the model adapts (dynamic evaluation, the cache), and generation."""
