import pytest
import torch

from highrank.analysis import rank as rank_module
from highrank.analysis.rank import (
    RowReducer,
    effective_rank,
    numerical_rank,
    press_tolerance,
    singular_values,
    stack_rows,
)


def low_rank(rows, columns, rank, noise=0.0):
    a = torch.randn(rows, rank, dtype=torch.float64) @ torch.randn(rank, columns, dtype=torch.float64)
    return a + noise * torch.randn(rows, columns, dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 17, 39, 40, 41, 79, 80, 81, 250])
@pytest.mark.parametrize("block", [1, 7, 40, 500])
def test_blocks_give_the_singular_values_of_the_whole(rows, block):
    a = low_rank(rows, 40, 40)
    reducer = RowReducer()
    for part in a.split(block):
        reducer.add(part)
    assert reducer.rows == rows
    assert len(reducer.factor()) <= 40
    torch.testing.assert_close(singular_values(reducer.factor()), torch.linalg.svdvals(a), rtol=1e-10, atol=1e-10)


def test_stacks_that_lapack_can_address_are_smaller_but_give_the_same(monkeypatch):
    monkeypatch.setattr(rank_module, "MAX_ELEMENTS", 40 * 45)
    assert stack_rows(40) == 45
    assert (stack_rows(44), stack_rows(30)) == (45, 60)  # at least one row must join R
    a = low_rank(333, 40, 40)
    reducer = RowReducer()
    for part in a.split(9):
        reducer.add(part)
    torch.testing.assert_close(singular_values(reducer.factor()), torch.linalg.svdvals(a), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 5, 39])
def test_noise_counts_as_rank_only_above_round_off(rank):
    def found(a):
        reducer = RowReducer()
        for rows in a.split(33):
            reducer.add(rows)
        return numerical_rank(singular_values(reducer.factor()), a.shape)

    a = low_rank(300, 40, rank)
    tolerance = press_tolerance(torch.linalg.svdvals(a)[0].item(), *a.shape)
    assert found(a) == rank
    assert found(a + 1e-4 * tolerance * torch.randn_like(a)) == rank
    assert found(a + 10 * tolerance * torch.randn_like(a)) == 40


def test_tolerance_is_the_formula_of_press_et_al():
    """0.5 sqrt(m + n + 1) s_max eps, computed by hand for 82,430 x 10,000 and a largest value of 2."""
    assert press_tolerance(2.0, 82_430, 10_000) == pytest.approx(0.5 * 304.024670 * 2 * 2.220446e-16, rel=1e-6, abs=0)


def test_qr_runs_once_per_v_rows_and_not_once_per_block(monkeypatch):
    qr = torch.linalg.qr
    calls = []
    monkeypatch.setattr(torch.linalg, "qr", lambda *arguments, **options: calls.append(1) or qr(*arguments, **options))
    reducer = RowReducer()
    for part in low_rank(400, 40, 40).split(5):
        reducer.add(part)
    assert len(calls) == 9  # the first after 80 rows, then after every 40


def test_effective_rank_is_the_exponential_of_the_entropy():
    assert effective_rank(torch.ones(7, dtype=torch.float64)) == pytest.approx(7)
    assert effective_rank(torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64)) == pytest.approx(1)
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert effective_rank(10 * p) == pytest.approx(2**1.5)  # entropy 1.5 bits


@pytest.mark.parametrize("shape", [(5, 30), (30, 5), (12, 12)])
def test_singular_values_of_wide_and_tall_matrices(shape):
    a = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(singular_values(a), torch.linalg.svdvals(a))


def test_float32_rows_raise():
    with pytest.raises(TypeError):
        RowReducer().add(torch.zeros(3, 3))


def test_a_matrix_without_rows_raises():
    with pytest.raises(ValueError):
        RowReducer().factor()


@pytest.mark.gpu
def test_gpu_and_cpu_agree():
    a = low_rank(700, 150, 90)
    results = []
    for device in ("cpu", "cuda"):
        reducer = RowReducer()
        for part in a.to(device).split(64):
            reducer.add(part)
        results.append(singular_values(reducer.factor()).cpu())
        assert numerical_rank(results[-1], a.shape) == 90
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)
