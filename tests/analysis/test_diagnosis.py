"""The diagnosis of an output layer on a text."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

from highrank.analysis.diagnosis import diagnose_gradient


def test_saturation_is_the_mean_cosine_of_context_vectors_of_one_component():
    weight = torch.randn(20, 4, dtype=torch.float64)
    h = torch.randn(5, 2, 4, dtype=torch.float64) + torch.tensor([[0.0], [2.0]])  # (T, K, D)
    log_pi = torch.full((5, 2), 0.5, dtype=torch.float64).log()
    pairs = [cosine_similarity(h[i, k], h[j, k], dim=0) for k in range(2) for i in range(5) for j in range(i)]
    blocks = iter([(log_pi[:3], h[:3]), (log_pi[3:], h[3:])])
    diagnosis = diagnose_gradient(weight, None, blocks, torch.arange(5))
    assert diagnosis.saturation == pytest.approx(torch.stack(pairs).mean().item())
