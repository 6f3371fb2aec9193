"""The fast arithmetic under heads and models. Ops know tensors only: no files, no devices chosen, no progress bars."""

import torch

HALF = (torch.float16, torch.bfloat16)
