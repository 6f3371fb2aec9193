"""Train a small GPT on a text file with a mixture of softmaxes, in one file and plain PyTorch.

    python examples/nanogpt_mos.py input.txt                      # a mixture of four softmaxes
    python examples/nanogpt_mos.py input.txt --components 1       # the softmax, for comparison

In the manner of nanoGPT: characters as tokens, learned positions, pre-norm blocks, tied embeddings, AdamW with warm-up
and cosine decay. The mixture changes three places, marked with MoS.
"""

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank import MoSHead, SoftmaxHead


class Block(nn.Module):
    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:  # (batch, time, width)
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        p = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size: int, context: int, width: int, layers: int, components: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.words = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 32), dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.apply(self._init)
        # MoS, 1 of 3: the head replaces nn.Linear(width, vocab_size), tied to the embedding as before.
        weight = self.words.weight
        if components > 1:
            self.head = MoSHead(width, width, vocab_size, components, weight=weight, batch_first=True)
        else:
            self.head = SoftmaxHead(width, vocab_size, weight=weight)

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def states(self, ids: Tensor) -> Tensor:  # (batch, time) -> (batch, time, width)
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.norm(self.blocks(self.words(ids) + self.positions(positions)))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        # MoS, 2 of 3: the head computes the loss; logits of all tokens are never built.
        return self.head(self.states(ids), targets).mean()

    @torch.no_grad()
    def generate(self, ids: Tensor, length: int, temperature: float = 0.8) -> Tensor:
        for _ in range(length):
            # MoS, 3 of 3: log-probabilities take the place of logits.
            log_p = self.head(self.states(ids[:, -self.context :])[:, -1])
            ids = torch.cat([ids, torch.multinomial((log_p / temperature).softmax(-1), 1)], dim=1)
        return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = args.text.read_text()
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    ids = torch.tensor([index[character] for character in text])
    train, valid = ids[: -len(ids) // 10], ids[-len(ids) // 10 :]

    def batch(split: Tensor) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(split) - args.context, (args.batch_size, 1))
        rows = split[starts + torch.arange(args.context + 1)].to(device)
        return rows[:, :-1], rows[:, 1:]

    model = GPT(len(characters), args.context, args.width, args.layers, args.components, args.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.99), weight_decay=0.1)
    warm_up = min(100, args.steps // 10 + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm_up, 0.1 + 0.45 * (1 + math.cos(math.pi * step / args.steps))),
    )
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(characters)} characters, {device}")
    for step in range(1, args.steps + 1):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = model(*batch(train))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, args.steps // 10) == 0:
            model.eval()
            with torch.no_grad():
                held_out = torch.stack([model(*batch(valid)) for _ in range(10)]).mean()
            model.train()
            print(f"step {step:5}  train {loss:.4f}  valid {held_out:.4f} nats per character", flush=True)

    made = model.eval().generate(torch.zeros(1, 1, dtype=torch.long, device=device), 200)
    print("".join(characters[i] for i in made[0]))


if __name__ == "__main__":
    main()
