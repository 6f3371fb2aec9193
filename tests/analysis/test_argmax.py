import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from highrank.analysis.argmax import can_win, find_unargmaxable
from highrank.errors import MissingPackageError


def corners(points):
    """Return the corners of the convex hull, computed by Qhull."""
    return set(ConvexHull(points).vertices.tolist())


def upper_corners(points):
    """Return the corners that are seen from infinitely far along the last coordinate."""
    hull = ConvexHull(points)
    upper = hull.equations[:, -2] > 0  # the last coordinate of the outer normal
    return set(np.unique(hull.simplices[upper]).tolist())


@pytest.mark.parametrize(("tokens", "dim"), [(30, 2), (200, 3), (80, 5)])
def test_without_a_bias_the_corners_of_the_hull_can_win(tokens, dim):
    weight = torch.randn(tokens, dim, dtype=torch.float64)
    found = find_unargmaxable(weight)
    assert set(found.tokens) == set(range(tokens)) - corners(weight.numpy())
    assert found.identical == 0


@pytest.mark.parametrize(("tokens", "dim"), [(40, 1), (120, 2), (200, 4)])
def test_a_bias_adds_a_coordinate_that_only_points_up(tokens, dim):
    weight = torch.randn(tokens, dim, dtype=torch.float64)
    bias = torch.randn(tokens, dtype=torch.float64)
    lifted = torch.cat([weight, bias[:, None]], dim=1)
    assert set(find_unargmaxable(weight, bias).tokens) == set(range(tokens)) - upper_corners(lifted.numpy())


def test_planted_tokens_are_found_exactly():
    weight = torch.randn(300, 24, dtype=torch.float64)
    assert find_unargmaxable(weight).tokens == []
    shares = torch.rand(10, 300, dtype=torch.float64)
    inside = shares / shares.sum(1, keepdim=True) @ weight
    assert find_unargmaxable(torch.cat([weight, inside])).tokens == list(range(300, 310))


def test_a_bias_can_rescue_a_token_inside_the_hull():
    weight = torch.tensor([[1.0], [0.0], [-1.0]])
    assert find_unargmaxable(weight).tokens == [1]
    assert find_unargmaxable(weight, torch.tensor([0.0, 0.1, 0.0])).tokens == []
    assert find_unargmaxable(weight, torch.tensor([0.0, -0.1, 0.0])).tokens == [1]


def test_copies_tie_and_never_win_alone():
    weight = torch.randn(50, 30)
    weight[[7, 30]] = weight[3].clone()
    found = find_unargmaxable(weight, torch.zeros(50))
    assert (found.tokens, found.identical, found.programs) == ([3, 7, 30], 3, 0)
    different_bias = torch.zeros(50)
    different_bias[30] = 1
    assert find_unargmaxable(weight, different_bias).tokens == [3, 7]


def test_a_solution_outside_its_bounds_by_round_off_is_used():
    """A solver may leave a bound by its tolerance: here the scale of the bias, which must not be negative."""
    calls = []

    def solve(*arguments, **options):
        assert len(calls) < 20, "the program does not end"
        calls.append(1)
        solution = linprog(*arguments, **options)
        solution.x[-2] -= 1e-9
        return solution

    rows = torch.tensor([[0.02, 0.1, 0], [1, 0, 1], [-1, 0, 1]], dtype=torch.float64)  # (w, b) of three tokens
    assert can_win(0, rows, 2, solve)
    assert calls


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
