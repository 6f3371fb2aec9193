"""Text -> vocabulary -> ids -> batches."""
