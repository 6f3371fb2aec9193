import pytest
import torch

from hf_models import make_model
from highrank.hf import convert
from highrank.hf.uptrain import UptrainSettings, count_steps, sample_windows, uptrain, validation_loss

SETTINGS = UptrainSettings(n_components=2, lr=0.01, batch_size=4, context=8, evaluations=2)
TEXT = torch.arange(400) ** 2 % 59


def test_mixture_and_softmax_start_equal_and_learn():
    curves = [uptrain(model, TEXT, TEXT, 30, SETTINGS) for model in (convert(make_model(), 2), make_model())]
    mixture, softmax = curves
    assert mixture.step == softmax.step == [0, 15, 30]
    assert mixture.valid_nll[0] == pytest.approx(softmax.valid_nll[0], rel=1e-6)
    assert mixture.valid_nll != softmax.valid_nll
    assert mixture.parameters > softmax.parameters
    for curve in curves:
        assert curve.valid_nll[-1] < curve.valid_nll[0] - 1
        assert curve.seconds == sorted(curve.seconds)


def test_windows_are_the_same_for_every_model():
    first, second = sample_windows(TEXT, SETTINGS), sample_windows(TEXT, SETTINGS)
    for _ in range(3):
        windows = next(first)
        assert torch.equal(windows, next(second))
        assert windows.shape == (4, 8)
        starts = [(TEXT.unfold(0, 8, 1) == window).all(1).any() for window in windows]
        assert all(starts)


def test_counting_steps_does_not_change_the_model():
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert count_steps(model, TEXT, SETTINGS, seconds=0.0) == 1
    assert count_steps(model, TEXT, SETTINGS, seconds=1e6) > 1
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_validation_loss_is_the_mean_over_windows():
    model = make_model()
    windows = TEXT[:16].view(2, 8)
    expected = model(windows, labels=windows).loss.item()
    assert validation_loss(model, TEXT[:23], SETTINGS) == pytest.approx(expected, rel=1e-6)
