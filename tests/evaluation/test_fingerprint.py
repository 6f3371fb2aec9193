"""Whatever makes it another piece of work gives it another name."""

import torch

from highrank.evaluation.fingerprint import fingerprint
from highrank.models import build_model
from highrank.recipes import ModelSpec

IDS = torch.arange(7) % 5


def make(head="mos", **changes):
    torch.manual_seed(2)
    return build_model(
        ModelSpec(**{"head": head, "embed_dim": 4, "hidden_sizes": (6, 4), "n_components": 3} | changes), 5
    )


def test_the_same_work_has_the_same_name():
    assert fingerprint("x", make(), IDS) == fingerprint("x", make().eval(), IDS.clone())
    rows = torch.stack([IDS, IDS], dim=1)
    assert fingerprint("x", make(), rows[:, 0]) == fingerprint("x", make(), IDS)  # wherever the text lies


def test_other_work_has_another():
    other = make()
    other.head.bias.data[3] += 1e-6
    names = {
        fingerprint("x", make(), IDS),
        fingerprint("y", make(), IDS),
        fingerprint("x", make("moc"), IDS),  # the same names, shapes and weights
        fingerprint("x", make("softmax"), IDS),
        fingerprint("x", make().double(), IDS),
        fingerprint("x", make(hidden_sizes=(4, 6, 4)), IDS),
        fingerprint("x", other, IDS),
        fingerprint("x", make(), IDS[:-1]),
        fingerprint("x", make(), IDS.flip(0)),
    }
    assert len(names) == 9
