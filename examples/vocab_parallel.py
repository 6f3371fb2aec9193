"""Train a mixture of softmaxes whose output embedding is divided among processes, each with its own words.

    torchrun --nproc-per-node 2 examples/vocab_parallel.py
    torchrun --nproc-per-node 4 examples/vocab_parallel.py --vocabulary 50000

The task is a toy: every word has one successor, which the model learns by heart. At the end the parts of the embedding
are joined, and the loss is computed again in one process. On GPUs, move all tensors to the process's own device.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

from highrank.ops.mos_nll import mos_nll
from highrank.ops.mos_nll.vocab_parallel import vocab_parallel_mos_nll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--components", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=20.0)
    arguments = parser.parse_args()
    vocabulary, dim, k = arguments.vocabulary, arguments.dim, arguments.components
    dist.init_process_group()  # NCCL on GPUs, gloo on CPUs
    rank, size = dist.get_rank(), dist.get_world_size()

    # Equal on all ranks: the layers before the output embedding, and the tokens of every batch.
    torch.manual_seed(1)
    embedding = nn.Embedding(vocabulary, dim)
    prior = nn.Linear(dim, k, bias=False)
    latent = nn.Linear(dim, k * dim)
    successor = torch.randperm(vocabulary)
    batches = [torch.randint(vocabulary, (256,)) for _ in range(arguments.steps)]

    # Different on every rank: its words of the output embedding.
    torch.manual_seed(2 + rank)
    first, end = rank * vocabulary // size, (rank + 1) * vocabulary // size
    weight = nn.Parameter(torch.randn(end - first, dim) / dim**0.5)
    bias = nn.Parameter(torch.zeros(end - first))

    layers = nn.ModuleList([embedding, prior, latent])
    parameters = [*layers.parameters(), weight, bias]
    for step, words in enumerate(batches):
        g = embedding(words)
        log_pi = prior(g).log_softmax(-1)
        h = latent(g).tanh().view(-1, k, dim)
        targets = successor[words]
        loss = vocab_parallel_mos_nll(h, log_pi, weight, bias, targets, first).mean()
        gradients = torch.autograd.grad(loss, parameters)  # those of `layers` are equal on all ranks: nothing to sum
        if step == 0 or step == arguments.steps - 1:
            parts = [None] * size
            dist.all_gather_object(parts, (weight.detach(), bias.detach()))
            whole = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
            alone = mos_nll(h, log_pi, *whole, targets).mean()
            if rank == 0:
                print(f"step {step + 1:4}: loss {loss:.4f} with {end - first} words per process, {alone:.4f} with all")
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= arguments.lr * gradient
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
