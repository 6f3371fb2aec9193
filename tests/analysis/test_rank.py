import pytest
import torch

from highrank.analysis.rank import RowReducer, log_prob_spectrum, numerical_rank, press_tolerance
from highrank.models import LanguageModel


def low_rank(rows, columns, rank, noise=0.0):
    a = torch.randn(rows, rank, dtype=torch.float64) @ torch.randn(rank, columns, dtype=torch.float64)
    return a + noise * torch.randn(rows, columns, dtype=torch.float64)


@pytest.mark.parametrize("block", [1, 7, 40, 500])
def test_blocks_give_the_singular_values_of_the_whole(block):
    a = low_rank(120, 40, 40)
    reducer = RowReducer()
    for rows in a.split(block):
        reducer.add(rows)
    assert reducer.shape == (120, 40)
    torch.testing.assert_close(reducer.singular_values(), torch.linalg.svdvals(a), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 5, 39])
def test_exact_rank_is_found_under_round_off_and_not_over_it(rank):
    def found(a):
        reducer = RowReducer()
        for rows in a.split(33):
            reducer.add(rows)
        return numerical_rank(reducer.singular_values(), *a.shape)

    a = low_rank(300, 40, rank)
    tolerance = press_tolerance(torch.linalg.svdvals(a)[0].item(), *a.shape)
    assert found(a) == rank
    assert found(a + 1e-4 * tolerance * torch.randn_like(a)) == rank
    assert found(a + 10 * tolerance * torch.randn_like(a)) == 40


def test_float32_is_refused():
    with pytest.raises(TypeError, match="float64"):
        RowReducer().add(torch.zeros(3, 3))


@pytest.mark.parametrize("head", ["softmax", "moc", "mos"])
def test_the_bound_holds_for_language_models(head):
    model = LanguageModel(60, head=head, embed_dim=6, hidden_sizes=(10, 6), n_components=4).double().eval()
    for p in model.parameters():
        p.data.mul_(4)
    values, shape = log_prob_spectrum(model, torch.randint(60, (300,)), window=50)
    assert shape == (300, 60)
    rank = numerical_rank(values, *shape)
    assert rank > 20 if head == "mos" else rank <= 6 + 2
