"""Does a mixture of softmaxes help a small transformer? Trains one transformer with one head and measures it.

    python benchmarks/transformer_heads.py time --data-dir corpora --out results      # step times, alone on the GPU
    python benchmarks/transformer_heads.py train --corpus penn --head mos --dim 128 --data-dir corpora --out results
    python benchmarks/transformer_heads.py table --out results                        # results/transformer_heads.csv
    python benchmarks/transformer_heads.py draw --out results                         # results/transformers.png

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
from highrank.ops.cuda_graph import capture
from highrank.plotting import HEADS as HEADS_COLOURS
from highrank.plotting import PURPLE, pyplot, save_figure
from highrank.runs.provenance import provenance

HEADS = ("softmax", "moc", "mos", "converted")
WINDOW = 128  # tokens
BATCH = 32  # windows per step
COMPONENTS = 4
ANALYZED = 3000  # tokens of validation, for rank and gradient share
SLAB_BYTES = 2**29
EAGER_STEPS = 11  # before a capture, so that libraries choose algorithms and the optimizer creates its state


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
    """Trains one transformer with AdamW and a cosine schedule, in bfloat16 on a GPU.

    On a GPU, the first steps run eagerly; then the step is captured as a CUDA graph and replayed, because launching its
    kernels one by one takes longer than running them. Converting the head starts this again.
    """

    def __init__(self, arguments: argparse.Namespace, head: str, data: Data, steps: int, dropout: float) -> None:
        torch.manual_seed(arguments.seed)
        self.device = torch.device(arguments.device)
        self.head = head
        self.steps = steps
        self.step = 0
        self.lr = arguments.lr
        self.data = Data({s: ids.to(self.device) for s, ids in data.splits.items()}, data.vocab_size)
        self.model = Transformer(head, data.vocab_size, arguments.dim, arguments.layers, dropout).to(self.device)
        cuda = self.device.type == "cuda"
        options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.1, "fused": cuda, "capturable": cuda}
        lr = torch.tensor(self.lr, device=self.device)  # a tensor, because a graph would keep the value of a number
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, **options)
        self.offsets = torch.arange(WINDOW + 1, device=self.device)
        self.windows = torch.zeros(BATCH, WINDOW + 1, dtype=torch.long, device=self.device)
        self.stream = torch.cuda.Stream(self.device) if cuda else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager_steps = EAGER_STEPS  # left before the capture

    def convert(self) -> None:
        """Replace the softmax by an equal mixture, and train its new parameters too."""
        self.optimizer.add_param_group({"params": self.model.convert()})
        self.graph = None
        self.eager_steps = EAGER_STEPS

    def train_step(self) -> None:
        if self.head == "converted" and self.step == self.steps // 2:
            self.convert()
        warmup = min(1.0, (self.step + 1) / (0.05 * self.steps))
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * self.step / self.steps))
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.lr * warmup * cosine)
        ids = self.data.splits["train"]
        starts = torch.randint(len(ids) - WINDOW, (BATCH, 1), device=self.device)
        self.windows.copy_(ids[starts + self.offsets])
        if self.stream is None:
            self._update()
        elif self.eager_steps > 0:
            self._update_on(self.stream)
            self.eager_steps -= 1
        else:
            if self.graph is None:
                self.graph, _ = capture(self._update, self.device)  # records the step without running it
            self.graph.replay()
        self.step += 1

    def _update(self) -> None:
        """Train on `windows`. Ends without gradients, so a graph allocates its own."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.model.head(self.model.hidden(self.windows[:, :-1]), self.windows[:, 1:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _update_on(self, stream: torch.cuda.Stream) -> None:
        """Update on a side stream, as steps before a capture have to."""
        current = torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self._update()
        current.wait_stream(stream)

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
                trainer.convert()
            times[f"{key}-{head}"] = _step_ms(trainer, arguments.timed)
        softmax = times[f"{key}-softmax"]
        times[f"{key}-converted"] = (times[f"{key}-converted"] + softmax) / 2
        print({name: round(ms, 2) for name, ms in times.items() if name.startswith(key)}, flush=True)
    write_json(arguments.out / "step_ms.json", times)


def _step_ms(trainer: Trainer, steps: int) -> float:
    """Return the median time of a step, after the eager ones and as many that warm up."""
    times = []
    for _ in range(EAGER_STEPS + 2 * steps):
        began = time.perf_counter()
        trainer.train_step()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return sorted(times[-steps:])[steps // 2]


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
    """Write all records as one CSV file, and print the means over seeds at the best dropout as Markdown."""
    records = read_records(arguments.out)
    rows = [{**record, "curve": " ".join(f"{p['valid_loss']:.4f}" for p in record["curve"])} for record in records]
    write_csv(arguments.out / "transformer_heads.csv", rows)
    columns = ["corpus", "dim", "head", "equal", "steps", "step_ms", "valid_loss", "test_loss", "rank"]
    columns += ["effective_rank", "gradient_share", "reach"]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for group in groups(records):
        cells = [shown(mean(group, name)) for name in columns]
        print("|", " | ".join(cells), "|")


def shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def groups(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the seeds of each corpus, size, head and comparison, at the dropout that was best for the softmax."""
    by_setting: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        others = [r for r in records if all(r[k] == record[k] for k in ("corpus", "dim", "head"))]
        if record["dropout"] == min(others, key=lambda r: r["valid_loss"])["dropout"]:
            key = (record["corpus"], record["dim"], record["equal"], HEADS.index(record["head"]))
            by_setting.setdefault(key, []).append(record)
    return [by_setting[key] for key in sorted(by_setting)]


def mean(records: list[dict[str, Any]], key: str) -> Any:
    """Return the mean of a number over seeds; what is the same in all of them stays as it is."""
    values = [record[key] for record in records if record[key] is not None]
    if len(set(values)) <= 1:
        return values[0] if values else None
    return sum(values) / len(values)


def draw(arguments: argparse.Namespace) -> None:
    """Draw the loss of each head minus that of the softmax: one dot per seed, corpora and sizes side by side."""
    same_setting = groups(read_records(arguments.out))
    softmax = {(g[0]["corpus"], g[0]["dim"]): mean(g, "valid_loss") for g in same_setting if g[0]["head"] == "softmax"}
    colours = {"moc": HEADS_COLOURS["moc"], "mos": HEADS_COLOURS["mos"], "converted": PURPLE}
    names = {"moc": "MoC", "mos": "MoS from scratch", "converted": "softmax, converted to MoS at half time"}
    figure, panels = pyplot().subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for panel, equal in zip(panels, ("steps", "time"), strict=True):
        shown = [g for g in same_setting if g[0]["equal"] == equal and g[0]["head"] in colours]
        settings = sorted({(g[0]["corpus"], g[0]["dim"]) for g in shown})
        for group in shown:
            head = group[0]["head"]
            setting = (group[0]["corpus"], group[0]["dim"])
            x = settings.index(setting) + 0.2 * (list(colours).index(head) - 1)
            gains = [r["valid_loss"] - softmax[setting] for r in group]
            panel.plot([x] * len(gains), gains, "o", color=colours[head], label=names[head], alpha=0.8)
        panel.axhline(0, color=HEADS_COLOURS["softmax"], label="softmax")
        panel.set_xticks(range(len(settings)), [f"{corpus}\nD = {dim}" for corpus, dim in settings], fontsize=8)
        panel.set_title(f"equal {equal}, equal parameters", fontsize=10)
    panels[0].set_ylabel("validation loss minus the softmax's, nats")
    by_label = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(by_label.values(), by_label.keys(), fontsize=8, ncols=4, loc="outside lower center")
    save_figure(figure, [arguments.out / "transformers.png"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("time", "train", "table", "draw"))
    parser.add_argument("--corpus", default="penn")
    parser.add_argument("--corpora", nargs="+", default=["penn", "wikitext-2", "text8"], help="of time")
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256], help="of time")
    parser.add_argument("--timed", type=int, default=30, help="steps of time")
    parser.add_argument("--head", choices=HEADS, default="softmax")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3000, help="of the softmax")
    parser.add_argument("--equal", choices=("steps", "time"), default="steps")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--analyzed", type=int, default=ANALYZED, help="tokens for rank and gradient share")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("transformer_heads"))
    arguments = parser.parse_args()
    commands = {"time": measure_step_times, "train": train, "table": write_table, "draw": draw}
    commands[arguments.command](arguments)


if __name__ == "__main__":
    main()
