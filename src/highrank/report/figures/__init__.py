"""The figures: each function takes records and returns or saves a matplotlib figure."""
