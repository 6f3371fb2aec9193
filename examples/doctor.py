"""Examine an output layer of your own: which tokens can never win, and how much of the gradient passes through it.

    python examples/doctor.py                             # a random layer with one planted token
    python examples/doctor.py --vocabulary 10000 --dim 280

For a trained model, use the command: highrank doctor MODEL --text FILE
"""

import argparse

import torch

from highrank.analysis.diagnosis import diagnose_weights
from highrank.analysis.gradient import gradient_share, random_share, reach
from highrank.analysis.output_layer import column_basis


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=32)
    arguments = parser.parse_args()
    torch.manual_seed(1)

    # Any nn.Linear will do, for example model.lm_head.
    output = torch.nn.Linear(arguments.dim, arguments.vocabulary, dtype=torch.float64)
    weight, bias = output.weight.detach(), output.bias.detach()
    weight[7] = weight[10:].mean(0)  # token 7 is now surrounded by others, and never has the largest logit
    bias[7] = bias[10:].mean()
    found = diagnose_weights(weight, bias)
    print(f"rank {found.layer.rank}, effective rank {found.layer.effective_rank:.1f}")
    print(f"log-probabilities of a softmax have rank at most {found.layer.rank_bound}")
    print(f"tokens that can never be the most likely one: {found.unargmaxable.tokens}")

    # Context vectors of a random mixture, 20 tokens.
    print("\n K  gradient share (random)  reach of the mixture (random)")
    targets = torch.randint(arguments.vocabulary, (20,))
    for k in (1, 2, 4, 8):
        log_pi = torch.randn(20, k, dtype=torch.float64).log_softmax(1)
        h = 4 * torch.randn(20, k, arguments.dim, dtype=torch.float64)
        share = gradient_share(column_basis(weight), weight, bias, log_pi, h, targets).mean()
        reached = reach(weight, bias, log_pi, h, targets).mean()
        random_one = random_share(arguments.dim, arguments.vocabulary)
        random_all = random_share(k * (arguments.dim + 1), arguments.vocabulary)
        print(f"{k:2}  {share:14.3f} ({random_one:.3f})  {reached:20.3f} ({random_all:.3f})")


if __name__ == "__main__":
    main()
