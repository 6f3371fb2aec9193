"""Rank and spectrum of log-probability matrices."""
