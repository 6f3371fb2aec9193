"""text -> vocabulary -> ids -> batches."""
