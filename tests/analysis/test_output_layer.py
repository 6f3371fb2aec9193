import pytest
import torch

from highrank.analysis.output_layer import describe_layer


def test_the_spectrum_and_norms_are_those_of_the_matrix():
    weight = torch.randn(50, 6, dtype=torch.float64)
    layer = describe_layer(weight, None)
    assert layer.spectrum.values == pytest.approx(torch.linalg.svdvals(weight).tolist())
    norms = weight.norm(dim=1)
    assert (layer.norms[0], layer.norms[-1]) == (norms.min().item(), norms.max().item())


@pytest.mark.parametrize(("bias", "bound"), [(None, 6), (torch.zeros(50), 7)])
def test_the_bound_follows_the_rank_of_the_matrix(bias, bound):
    weight = torch.randn(50, 6, dtype=torch.float64)
    weight[:, 0] = weight[:, 1]
    layer = describe_layer(weight, bias)
    assert (layer.rank, layer.rank_bound) == (5, bound)


def test_the_mean_cosine_is_that_of_all_pairs():
    weight = torch.randn(40, 5, dtype=torch.float64) + 0.5
    weight[3] = 0  # has no direction
    unit = torch.nn.functional.normalize(weight[torch.arange(40) != 3], dim=1)
    pairs = (unit @ unit.T)[~torch.eye(39, dtype=torch.bool)]
    assert describe_layer(weight, None).mean_cosine == pytest.approx(pairs.mean().item())


def test_isotropy_is_one_only_without_a_preferred_direction():
    every_way = torch.cat([torch.eye(4), -torch.eye(4)])
    assert describe_layer(every_way, None).isotropy == pytest.approx(1)
    assert describe_layer(every_way + torch.tensor([1.0, 0, 0, 0]), None).isotropy < 0.5
