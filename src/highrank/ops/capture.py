"""What must happen before a CUDA graph is captured."""

import torch


def prepare_capture(device: torch.device) -> None:
    """Make the matrix library's handles, in this thread and in autograd's.

    They are made at the first product, which must not be inside a capture; and a rehearsal may take another road
    through the backward pass than the capture does.
    """
    a = torch.ones(8, 8, device=device, requires_grad=True)
    (a @ a).sum().backward()
    torch.cuda.synchronize(device)
