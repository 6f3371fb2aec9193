"""The choice of a device by name."""

import re
from typing import TYPE_CHECKING

from highrank.errors import UserError

if TYPE_CHECKING:
    import torch


def find_device(name: "str | torch.device") -> "torch.device":
    """Return the device of that name; "auto" is a GPU if there is one, else the CPU."""
    import torch  # here, because the command line imports this module at once

    if isinstance(name, torch.device):
        return name
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f'"{name}" is not a device: choose auto, cpu, cuda or cuda:N.')
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise UserError(f"the device {name} is not available ({count} CUDA devices found): use the device cpu.")
    return device
