"""Perplexity, dynamic evaluation, the continuous cache, the search for their settings, and generation."""
