"""The fast arithmetic under heads and models. Ops know tensors only: no files, no devices chosen, no progress bars."""
