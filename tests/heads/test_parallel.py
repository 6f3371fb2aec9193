"""Two processes compute the gradients of one: DDP, and FSDP2 with a tied embedding or with the head sharded alone.

A sharded head can be initialised.
"""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from highrank import MoSHead

pytestmark = [
    pytest.mark.slow,  # two more processes that import torch
    pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo"),
]
V, D = 23, 6


class Model(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        self.body = nn.Linear(D, D)
        self.head = MoSHead(D, D, V, 3, weight=self.embedding.weight if tied else None)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(words)), targets).mean()


def work(rank: int, store: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method  # lazily: importing takes seconds

    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    words, targets = torch.randint(V, (2, 4, 5))
    mine = slice(2 * rank, 2 * rank + 2)
    for how in ("ddp", "fsdp", "fsdp, head alone"):
        model = Model(tied=how != "fsdp, head alone")
        truth = copy.deepcopy(model).double()
        truth.head.impl = "reference"
        truth(words, targets).backward()
        if how == "ddp":
            wrapped: nn.Module = DistributedDataParallel(model)
        else:
            if how == "fsdp, head alone":
                fully_shard(model.head, mesh=mesh)
                register_fsdp_forward_method(model.head, "log_prob")
            wrapped = fully_shard(model, mesh=mesh)
        wrapped(words[mine], targets[mine]).backward()
        for (key, p), expected in zip(model.named_parameters(), truth.parameters(), strict=True):
            gradient = p.grad if how == "ddp" else p.grad.full_tensor()
            torch.testing.assert_close(
                gradient.double(),
                expected.grad,
                rtol=1e-4,
                atol=1e-6,
                msg=lambda m, key=key, how=how: f"{how} {key}: {m}",
            )
        assert (model.head.weight is model.embedding.weight) == (how != "fsdp, head alone")
        if how == "fsdp, head alone":
            assert model.head.log_prob(torch.randn(3, D)).shape == (3, V)
    check_initialisation_after_sharding(mesh)
    dist.destroy_process_group()


def check_initialisation_after_sharding(mesh: Any) -> None:
    """A model that was built on the meta device gets its values after `fully_shard`, as large models do."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = Model(tied=True)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="DTensor random operators")  # torch's on any CPU
        for module in (model.embedding, model.body, model.head):
            module.reset_parameters()
        model.head.init_mixture()
    norm = model.head.weight.full_tensor().norm(dim=1)
    torch.testing.assert_close(model.head.scale, norm.square().mean().rsqrt())


def test_two_processes_compute_the_gradients_of_one(tmp_path):
    torch.multiprocessing.spawn(work, (str(tmp_path / "store"),), nprocs=2)
