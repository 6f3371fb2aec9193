import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, nnls
from scipy.spatial import ConvexHull

from highrank.analysis import argmax
from highrank.analysis.argmax import find_unargmaxable, prepare_layer, settle, unwhiten
from highrank.analysis.hull import nearest_mixture, search
from highrank.errors import MissingPackageError
from highrank.progress import no_stages


def corners(points):
    """Return the corners of the convex hull, computed by Qhull."""
    return set(ConvexHull(points).vertices.tolist())


def upper_corners(points):
    """Return the corners that are seen from infinitely far along the last coordinate."""
    hull = ConvexHull(points)
    upper = hull.equations[:, -2] > 0  # the last coordinate of the outer normal
    return set(np.unique(hull.simplices[upper]).tolist())


def best_margin(token, weight, bias):
    """Return the largest margin by which an h in a box lets the token win, by a linear program with all tokens."""
    rows = weight if bias is None else torch.cat([weight, bias[:, None]], dim=1)
    rows = (rows / rows.abs().amax(0)).numpy()
    differences = np.delete(rows[token] - rows, token, axis=0)
    constraints = np.hstack([-differences, np.ones((len(differences), 1))])  # margin - differences . h <= 0
    objective = np.zeros(constraints.shape[1])
    objective[-1] = -1
    box = [(-1, 1)] * weight.shape[1] + [(0, 1)] * (bias is not None) + [(None, None)]
    return linprog(objective, A_ub=constraints, b_ub=np.zeros(len(differences)), bounds=box).x[-1]


@pytest.mark.parametrize(("tokens", "dim"), [(30, 2), (200, 3), (80, 5)])
def test_without_a_bias_the_corners_of_the_hull_can_win(tokens, dim):
    weight = torch.randn(tokens, dim, dtype=torch.float64)
    found = find_unargmaxable(weight)
    assert set(found.tokens) == set(range(tokens)) - corners(weight.numpy())
    assert (found.identical, found.undecided) == (0, [])


@pytest.mark.parametrize(("tokens", "dim"), [(40, 1), (120, 2), (200, 4)])
def test_a_bias_adds_a_coordinate_that_only_points_up(tokens, dim):
    weight = torch.randn(tokens, dim, dtype=torch.float64)
    bias = torch.randn(tokens, dtype=torch.float64)
    lifted = torch.cat([weight, bias[:, None]], dim=1)
    assert set(find_unargmaxable(weight, bias).tokens) == set(range(tokens)) - upper_corners(lifted.numpy())


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_verdicts_are_those_of_linear_programs(seed, has_bias):
    generator = torch.Generator().manual_seed(seed)
    tokens, dim = [(60, 3), (60, 8), (100, 12)][seed % 3]
    weight = torch.randn(tokens, dim, generator=generator, dtype=torch.float64)
    weight *= torch.logspace(0, -3, dim)  # columns of very different size
    bias = torch.randn(tokens, generator=generator, dtype=torch.float64) if has_bias else None
    weight[0] = weight.mean(0)
    weight[1] = weight[7]  # the bias may differ
    weight[2] = weight[8:10].mean(0)
    weight[3] = 1.0001 * weight[10:12].mean(0)
    weight[4] = 0.9999 * weight[12:14].mean(0)
    found = find_unargmaxable(weight, bias)
    margins = [best_margin(token, weight, bias) for token in range(tokens)]
    assert found.tokens == [token for token, margin in enumerate(margins) if margin < 1e-9]
    assert found.undecided == []


def test_planted_tokens_are_found_exactly():
    weight = torch.randn(300, 24, dtype=torch.float64)
    assert find_unargmaxable(weight).tokens == []
    shares = torch.rand(10, 300, dtype=torch.float64)
    inside = shares / shares.sum(1, keepdim=True) @ weight
    assert find_unargmaxable(torch.cat([weight, inside])).tokens == list(range(300, 310))


def test_unused_tokens_near_the_mean_are_found_in_two_steps():
    weight = torch.randn(2000, 50, dtype=torch.float64)
    unused = torch.arange(1000, 1300)
    weight[unused] = weight.mean(0) + 0.02 * torch.randn(300, 50, dtype=torch.float64)
    layer = prepare_layer(weight, None)
    _, won, lost = settle(unused, torch.zeros_like(layer.x[unused]), layer, 2, no_stages)
    assert lost.all()
    assert not won.any()


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_search_finds_one_of_two_proofs(has_bias):
    weight = torch.randn(500, 20, dtype=torch.float64)
    bias = torch.randn(500, dtype=torch.float64)
    if not has_bias:
        bias.zero_()
    tokens = torch.arange(100)
    weight[tokens] *= torch.linspace(0, 1, 100)[:, None]  # from the centre to the boundary and beyond
    layer = prepare_layer(weight, bias)
    h, shares = search(tokens, torch.zeros_like(layer.x[tokens]), layer.x, has_bias, steps=100)
    h = unwhiten(h, layer)

    weight = weight / weight.abs().max()
    logits = h[:, :20] @ weight.T
    if has_bias:
        assert (h[:, 20] >= 0).all()
        bias = bias / bias.abs().max()
        logits += h[:, 20:] * bias
    own = logits.gather(1, tokens[:, None])
    can_win = (logits >= own).sum(1) == 1

    valid = (shares >= 0).all(1) & ((shares.sum(1) - 1).abs() < 1e-12) & (shares[tokens, tokens] == 0)
    equal = (shares @ weight - weight[tokens]).abs().amax(1) < 1e-9
    never = valid & equal & (shares @ bias > bias[tokens] - 1e-9)
    assert not (can_win & never).any()
    assert (can_win | never).sum() >= 95  # a few are near the boundary
    assert can_win.sum() > 40
    assert never.sum() > 30


@pytest.mark.parametrize("has_bias", [False, True])
def test_least_squares_finds_one_of_two_proofs(has_bias):
    rows = torch.randn(30, 8, dtype=torch.float64)
    rivals = torch.arange(1, 30)
    rows[0] = rows[[4, 7]].mean(0)
    rows[0, -1] -= float(has_bias)  # a mixture may have the larger bias
    shares, h = nearest_mixture(0, rivals, rows, has_bias, nnls)
    mixture = shares @ rows[rivals] - rows[0]
    assert (shares >= 0).all()
    assert mixture[:-1].abs().max() < 1e-12
    assert mixture[-1] == pytest.approx(float(has_bias), abs=1e-12)
    assert h.abs().max() < 1e-12

    rows[0] *= 5
    rows[0, -1] += 10 * has_bias
    _, h = nearest_mixture(0, rivals, rows, has_bias, nnls)
    assert rows[0] @ h > (rows[rivals] @ h).max()
    assert not has_bias or h[-1] >= 0


def test_a_mixture_of_few_rows_lies_on_the_boundary():
    weight = torch.randn(400, 60, dtype=torch.float64)
    weight[3] = weight[10:13].mean(0)  # three of few corners in many dimensions: a face of the hull
    assert find_unargmaxable(weight).tokens == [3]
    weight[3] *= 1 + 1e-6
    assert find_unargmaxable(weight).tokens == []


@pytest.mark.gpu
def test_a_gpu_finds_the_same_tokens():
    weight = torch.randn(400, 60)
    weight[3] = weight[10:13].mean(0)
    weight[4] = weight.mean(0)
    bias = torch.randn(400)
    bias[3:5] = -1
    assert find_unargmaxable(weight.cuda(), bias.cuda()) == find_unargmaxable(weight, bias)


def test_many_near_copies_are_set_apart_and_do_not_hide_the_others(monkeypatch):
    monkeypatch.setattr(argmax, "MANY", 10)
    weight = torch.randn(200, 20, dtype=torch.float64)
    unseen = torch.cat([torch.arange(50, 90), torch.arange(120, 140)])
    weight[50:90] = weight[50] + 1e-6 * torch.randn(40, 20, dtype=torch.float64)
    weight[120:140] = weight[120] + 1e-6 * torch.randn(20, 20, dtype=torch.float64)
    weight[7] = weight[[1, 2, 3]].mean(0)
    found = find_unargmaxable(weight)
    assert found.near_copies
    assert set(found.near_copies) <= set(unseen.tolist())
    assert (found.tokens, found.undecided) == ([7], [])


def test_a_token_without_a_proof_is_undecided(monkeypatch):
    monkeypatch.setattr(argmax, "SYSTEM_ELEMENTS", 0)
    weight = torch.randn(400, 60, dtype=torch.float64)
    weight[3] = weight[10:13].mean(0)
    found = find_unargmaxable(weight)
    assert (found.tokens, found.undecided) == ([], [3])


def test_a_bias_can_rescue_a_token_inside_the_hull():
    weight = torch.tensor([[1.0], [0.0], [-1.0]])
    assert find_unargmaxable(weight).tokens == [1]
    assert find_unargmaxable(weight, torch.tensor([0.0, 0.1, 0.0])).tokens == []
    assert find_unargmaxable(weight, torch.tensor([0.0, -0.1, 0.0])).tokens == [1]


def test_copies_tie_and_never_win_alone():
    weight = torch.randn(50, 30)
    weight[[7, 30]] = weight[3].clone()
    found = find_unargmaxable(weight, torch.zeros(50))
    assert (found.tokens, found.identical) == ([3, 7, 30], 3)
    different_bias = torch.zeros(50)
    different_bias[30] = 1
    assert find_unargmaxable(weight, different_bias).tokens == [3, 7]


def test_the_scale_of_the_weights_does_not_matter():
    weight = torch.randn(60, 3, dtype=torch.float64)
    bias = torch.randn(60, dtype=torch.float64)
    expected = find_unargmaxable(weight, bias).tokens
    assert expected
    assert find_unargmaxable(1e-4 * weight, 1e-4 * bias).tokens == expected
    assert find_unargmaxable(1e-4 * weight, 1e3 * bias).tokens == expected  # h is unbounded


def test_without_scipy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingPackageError, match=r"\[doctor\]"):
        find_unargmaxable(torch.randn(5, 2))
