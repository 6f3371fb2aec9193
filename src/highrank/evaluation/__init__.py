"""Perplexity and generation."""
