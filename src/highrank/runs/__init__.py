"""Run folders and everything else on disk: checkpoints, records, metrics, provenance, caches, exports."""
