"""Runs on disk: folders, checkpoints, records, metrics, provenance, caches and exports."""
