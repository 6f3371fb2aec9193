"""Devices by name."""

import pytest
import torch

from highrank.device import find_device
from highrank.errors import UserError


def test_auto_is_the_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(find_device(name)) for name in ("auto", "cpu", "cuda:1")] == ["cuda", "cpu", "cuda:1"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(find_device("auto")) == "cpu"


def test_a_mac_uses_its_cpu(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(find_device("auto")) == "cpu"
    with pytest.raises(UserError, match="mps"):
        find_device("mps")


@pytest.mark.parametrize("name", ["cuda:2", "gpu", "meta"])
def test_unavailable_devices(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=name):
        find_device(name)
