import torch

from highrank.ops.dropout import embedding_dropout, gaussian_noise, variational_dropout, weight_dropout


def test_variational_dropout_shares_its_mask_over_time():
    x = torch.ones(6, 3, 50)
    dropped = variational_dropout(x, 0.4)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert set(dropped.unique().tolist()) <= {0.0, (1 / torch.tensor(0.6)).item()}
    assert not torch.equal(dropped[0, 0], dropped[0, 1])  # each column has its own mask


def test_variational_dropout_takes_the_time_dimension():
    dropped = variational_dropout(torch.ones(3, 6, 50), 0.4, time_dim=1)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0], dropped[1, 0])


def test_variational_dropout_without_a_time_dimension_masks_each_row():
    dropped = variational_dropout(torch.ones(4, 200), 0.5)
    assert not torch.equal(dropped[0], dropped[1])


def test_groups_of_features_share_one_mask():
    dropped = variational_dropout(torch.ones(6, 3, 4 * 50), 0.4, groups=4).unflatten(-1, (4, 50))
    assert torch.equal(dropped, dropped[:1, :, :1].expand_as(dropped))
    assert not torch.equal(dropped[0, 0, 0], dropped[0, 1, 0])  # each column has its own mask


def test_variational_dropout_keeps_the_mean():
    assert abs(variational_dropout(torch.ones(1, 100, 1000), 0.3).mean().item() - 1) < 0.02


def test_embedding_dropout_drops_whole_words_at_all_their_places():
    weight = torch.randn(20, 8) + 5
    words = torch.arange(20).repeat(4, 1)  # every word four times
    embedded = embedding_dropout(words, weight, 0.5)
    gone = (embedded == 0).all(-1)
    assert torch.equal(gone, gone[:1].expand_as(gone))
    assert 0 < gone[0].sum() < 20
    kept = ~gone[0]
    torch.testing.assert_close(embedded[0][kept], weight[kept] * 2)


def test_embedding_dropout_has_the_gradient_of_masked_rows():
    weight = torch.randn(5, 3, requires_grad=True)
    embedding_dropout(torch.tensor([[0, 1, 1]]), weight, 0.0).sum().backward()
    assert weight.grad.sum(1).tolist() == [3.0, 6.0, 0.0, 0.0, 0.0]


def test_dropout_at_zero_is_the_identity():
    x = torch.randn(3, 2, 4)
    assert variational_dropout(x, 0.0) is x
    assert weight_dropout(x, 0.0) is x
    assert gaussian_noise(x, 0.0) is x


def test_gaussian_noise_is_independent_in_every_element():
    noise = gaussian_noise(torch.full((50, 10, 40), 3.0), 0.15) - 3
    assert abs(noise.std().item() - 0.15) < 0.005
    assert abs(noise.mean().item()) < 0.005
    assert abs((noise[1:] * noise[:-1]).mean().item()) < 0.001  # neighbours in time
