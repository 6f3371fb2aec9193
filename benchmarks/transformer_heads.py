"""Does a mixture of softmaxes help a small transformer? Trains one transformer with one head and measures it.

    python benchmarks/transformer_heads.py time --data-dir corpora --out results      # step times, alone on the GPU
    python benchmarks/transformer_heads.py train --corpus penn --head mos --dim 128 --data-dir corpora --out results
    python benchmarks/transformer_heads.py table --out results                        # results/transformer_heads.csv

Heads: softmax, moc, mos (from scratch), converted (a softmax that becomes a mixture after half of the steps). All have
the same number of parameters: the feed-forward layers of the mixtures are narrower. `--equal steps` gives all of them
the same number of steps, `--equal time` the same time, as counted by the step times of `time`. Without `--dropout`, the
best dropout of the softmax runs in the output folder is used. Corpora: penn and wikitext-2 (words), text8 (BPE of 8,000
pieces, trained on its first 90 %).
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.analysis.diagnosis import diagnose_gradient, softmaxes_of
from highrank.analysis.matrix import analyze_rows
from highrank.bench.table import write_csv
from highrank.data.corpus import load_corpus
from highrank.data.text8 import text8_file
from highrank.data.tokenizer import encode_lines, train_tokenizer
from highrank.files import write_json
from highrank.heads import Head, MoCHead, MoSHead, SoftmaxHead
from highrank.runs.provenance import provenance

HEADS = ("softmax", "moc", "mos", "converted")
WINDOW = 128  # tokens
BATCH = 32  # windows per step
COMPONENTS = 4
ANALYZED = 3000  # tokens of validation, for rank and gradient share
SLAB_BYTES = 2**29


# --- the model ------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One layer of a transformer: attention, then a feed-forward network, each after a layer norm."""

    def __init__(self, dim: int, width: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = dim // 32
        self.dropout = dropout
        self.norm_1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.norm_2 = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, dim))

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D)
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + F.dropout(self.project(attended.transpose(1, 2).flatten(2)), dropout)
        return x + F.dropout(self.feed_forward(self.norm_2(x)), dropout)


class Transformer(nn.Module):
    """A causal transformer whose head is tied to its embedding."""

    def __init__(self, head: str, vocab_size: int, dim: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Embedding(vocab_size, dim)
        self.position = nn.Parameter(torch.zeros(WINDOW, dim))
        wanted = 4 * dim - head_parameters(head, dim) / (2 * dim * layers)
        width = 8 * round(wanted / 8)  # tensor cores are slow on other sizes
        self.blocks = nn.Sequential(*(Block(dim, width, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(dim)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        weight = self.embedding.weight
        options: dict[str, Any] = {"weight": weight, "batch_first": True, "slab_bytes": SLAB_BYTES}
        self.head: Head
        if head in ("softmax", "converted"):
            self.head = SoftmaxHead(dim, vocab_size, **options)
        else:
            self.head = {"moc": MoCHead, "mos": MoSHead}[head](dim, dim, vocab_size, COMPONENTS, **options)

    def hidden(self, words: Tensor) -> Tensor:  # (B, T) -> (B, T, D)
        x = F.dropout(self.embedding(words) + self.position[: words.shape[1]], self.dropout, self.training)
        return F.dropout(self.norm(self.blocks(x)), self.dropout, self.training)

    def convert(self) -> list[nn.Parameter]:
        """Replace the softmax by an equal mixture, and return its new parameters."""
        linear = nn.Linear(1, 1)
        linear.weight = self.head.weight
        linear.bias = self.head.bias  # type: ignore[assignment]
        self.head = MoSHead.from_linear(linear, COMPONENTS, slab_bytes=SLAB_BYTES)
        return [p for p in self.head.parameters() if p is not linear.weight and p is not linear.bias]


def head_parameters(head: str, dim: int) -> int:
    """Return how many parameters a head has more than the softmax."""
    mixture = COMPONENTS * (dim + dim * (dim + 1))  # prior and latent
    return {"softmax": 0, "moc": mixture, "mos": mixture, "converted": mixture + COMPONENTS * dim * dim}[head]


# --- data -----------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    splits: dict[str, Tensor]  # ids
    vocab_size: int


def load_data(name: str, data_dir: Path, cache: Path) -> Data:
    """Read the words of a corpus, or the BPE pieces of text8, which are kept in `cache`."""
    if name != "text8":
        corpus = load_corpus(name, data_dir)
        return Data({split: corpus.ids(split) for split in ("train", "valid", "test")}, corpus.vocab_size)
    path = cache / "text8-bpe.pt"
    if not path.exists():
        words = text8_file(data_dir / name).read_text().split()
        bounds = [0, len(words) * 90 // 100, len(words) * 95 // 100, len(words)]
        parts = [words[a:b] for a, b in itertools.pairwise(bounds)]
        lines = [[" ".join(part[i : i + 1000]) for i in range(0, len(part), 1000)] for part in parts]
        tokenizer = train_tokenizer(lines[0], "bpe", lower=False, min_count=2, max_vocab=8000)
        splits = {s: encode_lines(tokenizer, part) for s, part in zip(("train", "valid", "test"), lines, strict=True)}
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({**splits, "size": torch.tensor(tokenizer.get_vocab_size())}, path)
    tensors = torch.load(path, weights_only=True)
    size = int(tensors.pop("size"))
    return Data(tensors, size)


# --- training -------------------------------------------------------------------------------------------------------


class Trainer:
    """Trains one transformer with AdamW and a cosine schedule, in bfloat16 on a GPU."""

    def __init__(self, arguments: argparse.Namespace, head: str, data: Data, steps: int, dropout: float) -> None:
        torch.manual_seed(arguments.seed)
        self.device = torch.device(arguments.device)
        self.head = head
        self.steps = steps
        self.step = 0
        self.lr = arguments.lr
        self.data = Data({s: ids.to(self.device) for s, ids in data.splits.items()}, data.vocab_size)
        self.model = Transformer(head, data.vocab_size, arguments.dim, arguments.layers, dropout).to(self.device)
        options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.1, "fused": self.device.type == "cuda"}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr, **options)

    def train_step(self) -> None:
        if self.head == "converted" and self.step == self.steps // 2:
            self.optimizer.add_param_group({"params": self.model.convert()})
        warmup = min(1.0, (self.step + 1) / (0.05 * self.steps))
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * self.step / self.steps))
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * warmup * cosine
        ids = self.data.splits["train"]
        starts = torch.randint(len(ids) - WINDOW, (BATCH, 1), device=self.device)
        windows = ids[starts + torch.arange(WINDOW + 1, device=self.device)]  # (B, T + 1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.model.head(self.model.hidden(windows[:, :-1]), windows[:, 1:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1

    @torch.no_grad()
    def loss(self, split: str) -> float:
        """Return the mean loss of a split in float32, in windows whose second half counts (and all of the first)."""
        self.model.eval()
        ids = self.data.splits[split]
        total = 0.0
        starts = torch.arange(0, len(ids) - WINDOW, WINDOW // 2, device=self.device)
        for batch in starts.split(2 * BATCH):
            windows = ids[batch[:, None] + torch.arange(WINDOW + 1, device=self.device)]
            nll = self.model.head(self.model.hidden(windows[:, :-1]), windows[:, 1:])
            total += nll[:, WINDOW // 2 :].sum().item()
            if batch[0] == 0:
                total += nll[0, : WINDOW // 2].sum().item()
        self.model.train()
        return total / (len(starts) * (WINDOW // 2) + WINDOW // 2)

    def analyze(self, tokens: int) -> dict[str, Any]:
        """Measure rank, effective rank and gradient share on the start of validation, in float64."""
        model = self.model.double().eval()
        ids = self.data.splits["valid"][: tokens + 1]

        def hidden() -> Any:
            for window in ids[:-1].split(WINDOW):
                yield model.hidden(window[None])[0]

        with torch.no_grad():
            result = analyze_rows((model.head.log_prob(h) for h in hidden()), ids[:-1], contexts=500)
            softmaxes = (softmaxes_of(model.head, h) for h in hidden())
            gradient = diagnose_gradient(model.head.weight, model.head.bias, softmaxes, ids[1:])
        return {
            "rank": result.rank,
            "rank_tokens": len(ids) - 1,
            "effective_rank": result.effective_rank,
            "gradient_share": gradient.share.mean,
            "random_share": gradient.share.random,
            "reach": None if gradient.reach is None else gradient.reach.mean,
        }


# --- commands -------------------------------------------------------------------------------------------------------


def measure_step_times(arguments: argparse.Namespace) -> None:
    """Time the steps of every head, corpus and size, one after the other, and write step_ms.json."""
    times = {}
    for corpus, dim in itertools.product(arguments.corpora, arguments.dims):
        arguments.dim = dim
        key = f"{Path(corpus).name}-{dim}"
        data = load_data(corpus, arguments.data_dir, arguments.out)
        for head in HEADS:
            trainer = Trainer(arguments, head, data, 10**6, 0.1)
            if head == "converted":  # the half of the steps that has the mixture
                trainer.optimizer.add_param_group({"params": trainer.model.convert()})
            times[f"{key}-{head}"] = _step_ms(trainer, arguments.timed)
        softmax = times[f"{key}-softmax"]
        times[f"{key}-converted"] = (times[f"{key}-converted"] + softmax) / 2
        print({name: round(ms, 2) for name, ms in times.items() if name.startswith(key)}, flush=True)
    write_json(arguments.out / "step_ms.json", times)


def _step_ms(trainer: Trainer, steps: int) -> float:
    """Return the median time of a step, after as many that warm up."""
    times = []
    for _ in range(2 * steps):
        began = time.perf_counter()
        trainer.train_step()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return sorted(times[steps:])[steps // 2]


def train(arguments: argparse.Namespace) -> None:
    """Train one model, measure it and write its record."""
    step_ms = json.loads((arguments.out / "step_ms.json").read_text())
    key = f"{Path(arguments.corpus).name}-{arguments.dim}"
    head = arguments.head
    steps = arguments.steps
    if arguments.equal == "time":
        steps = round(steps * step_ms[f"{key}-softmax"] / step_ms[f"{key}-{head}"])
    dropout = best_dropout(arguments) if arguments.dropout is None else arguments.dropout
    data = load_data(arguments.corpus, arguments.data_dir, arguments.out)
    trainer = Trainer(arguments, head, data, steps, dropout)
    curve = []
    began = time.perf_counter()
    for step in range(1, steps + 1):
        trainer.train_step()
        if step % max(1, steps // 5) == 0:
            curve.append({"step": step, "valid_loss": trainer.loss("valid")})
            print(f"{key} {head}, step {step}: {curve[-1]['valid_loss']:.4f}", flush=True)
    seconds = time.perf_counter() - began
    record = {
        "corpus": Path(arguments.corpus).name,
        "vocabulary": data.vocab_size,
        "head": head,
        "n_components": 1 if head == "softmax" else COMPONENTS,
        "dim": arguments.dim,
        "layers": arguments.layers,
        "equal": arguments.equal,
        "dropout": dropout,
        "seed": arguments.seed,
        "steps": steps,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "step_ms": step_ms[f"{key}-{head}"],
        "seconds": seconds,
        "valid_loss": curve[-1]["valid_loss"],
        "best_valid_loss": min(point["valid_loss"] for point in curve),
        "test_loss": trainer.loss("test"),
        **trainer.analyze(arguments.analyzed),
        "curve": curve,
        **provenance(trainer.device),
    }
    name = f"{key}-{head}-{arguments.equal}-dropout{dropout}-seed{arguments.seed}.json"
    write_json(arguments.out / name, record)
    print({k: record[k] for k in ("head", "steps", "parameters", "valid_loss", "test_loss", "rank")}, flush=True)


def read_records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*-seed*.json"))]


def best_dropout(arguments: argparse.Namespace) -> float:
    """Return the dropout of the best softmax of this corpus and size, by its last validation loss."""
    same = {"corpus": Path(arguments.corpus).name, "dim": arguments.dim, "head": "softmax"}
    records = [r for r in read_records(arguments.out) if same.items() <= r.items()]
    if not records:
        raise SystemExit("no softmax of this corpus and size was trained: do it first, with --dropout")
    best = min(records, key=lambda r: r["valid_loss"])
    return float(best["dropout"])


def write_table(arguments: argparse.Namespace) -> None:
    """Write all records as one CSV, and print the main columns."""
    rows = [{k: v for k, v in record.items() if k != "curve"} for record in read_records(arguments.out)]
    write_csv(arguments.out / "transformer_heads.csv", rows)
    for row in rows:
        sizes = f"{row['corpus']:11} D={row['dim']:<4} {row['head']:10} {row['equal']:6} dropout {row['dropout']:<5}"
        losses = f"valid {row['valid_loss']:.4f} test {row['test_loss']:.4f}"
        print(f"{sizes} seed {row['seed']} {losses} rank {row['rank']} share {row['gradient_share']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("time", "train", "table"))
    parser.add_argument("--corpus", default="penn")
    parser.add_argument("--corpora", nargs="+", default=["penn", "wikitext-2", "text8"], help="of time")
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256], help="of time")
    parser.add_argument("--timed", type=int, default=30, help="steps of time")
    parser.add_argument("--head", choices=HEADS, default="softmax")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4000, help="of the softmax")
    parser.add_argument("--equal", choices=("steps", "time"), default="steps")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--analyzed", type=int, default=ANALYZED, help="tokens for rank and gradient share")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("transformer_heads"))
    arguments = parser.parse_args()
    commands = {"time": measure_step_times, "train": train, "table": write_table}
    commands[arguments.command](arguments)


if __name__ == "__main__":
    main()
