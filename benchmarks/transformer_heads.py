"""Does a mixture of softmaxes help a small transformer? Trains one transformer with one head and measures it.

    python benchmarks/transformer_heads.py all --data-dir corpora --out results       # all of the below, 12 at once
    python benchmarks/transformer_heads.py time --data-dir corpora --out results      # step times, alone on the GPU
    python benchmarks/transformer_heads.py train --corpus penn --head mos --dim 128 --data-dir corpora --out results
    python benchmarks/transformer_heads.py table --out results                        # results/transformer_heads.csv
    python benchmarks/transformer_heads.py draw --out results                         # results/transformers.png

Heads: softmax, moc, mos, residual (`MoSHead.from_linear`, from the first step), converted (a softmax that becomes the
residual mixture after half of the steps). residual-1 and converted-1 are their controls: the same layer with one
component, so without a mixture. All have the same number of parameters: the feed-forward layers beside the softmax are
the widest. `--equal steps` gives all of them the same number of steps, `--equal time` the same time, as counted by the
step times of `time`. Without `--dropout`, the best dropout of the softmax runs in the output folder is used. Corpora:
penn and wikitext-2 (words), text8 (BPE of 8,000 pieces, trained on its first 90 %).

`train` writes one JSON file per run. `table` collects them, and keeps the rows of an earlier transformer_heads.csv in
the output folder; `draw` shows both. `all` leaves out runs that are there already, so it can be interrupted and
repeated; start NVIDIA's MPS before it (`nvidia-cuda-mps-control -d`), and its processes share the GPU.
"""

import argparse
import csv
import itertools
import json
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from highrank.analysis.diagnosis import diagnose_gradient
from highrank.analysis.matrix import analyze_rows
from highrank.data.corpus import load_corpus
from highrank.data.text8 import text8_file
from highrank.data.tokenizer import encode_lines, train_tokenizer
from highrank.files import write_json
from highrank.heads import Head, MoCHead, MoSHead, SoftmaxHead
from highrank.ops.cuda_graph import capture
from highrank.plotting import HEAD_COLOURS, PURPLE, SKY, pyplot, save_figure
from highrank.runs.provenance import provenance
from measure import write_csv

HEADS = {
    "softmax": "softmax",
    "moc": "MoC",
    "mos": "MoS",
    "residual": "residual MoS",
    "residual-1": "residual layer",
    "converted": "converted",
    "converted-1": "converted to the layer",
}
CORPORA = {
    "penn": "Penn Treebank, words",
    "wikitext-2": "WikiText-2, words",
    "text8": "text8's first 12.5 million characters, BPE",
}
WINDOW = 128  # tokens
BATCH = 32  # windows per step
COMPONENTS = 4
DROPOUTS = (0.0, 0.05, 0.1, 0.2, 0.3)
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
        self.n_components = count_components(head)
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
        if head in ("moc", "mos"):
            self.head = {"moc": MoCHead, "mos": MoSHead}[head](dim, dim, vocab_size, self.n_components, **options)
        else:
            self.head = SoftmaxHead(dim, vocab_size, **options)
        if head.startswith("residual"):
            self.convert()

    def hidden(self, words: Tensor) -> Tensor:  # (B, T) -> (B, T, D)
        x = F.dropout(self.embedding(words) + self.position[: words.shape[1]], self.dropout, self.training)
        return F.dropout(self.norm(self.blocks(x)), self.dropout, self.training)

    def convert(self) -> list[nn.Parameter]:
        """Replace the softmax by an equal mixture, and return its new parameters."""
        linear = nn.Linear(1, 1)
        linear.weight = self.head.weight
        linear.bias = self.head.bias  # type: ignore[assignment]
        self.head = MoSHead.from_linear(linear, self.n_components, slab_bytes=SLAB_BYTES)
        return [p for p in self.head.parameters() if p is not linear.weight and p is not linear.bias]


def count_components(head: str) -> int:
    """Return K of a head, in the end for a converted one."""
    return 1 if head == "softmax" or head.endswith("-1") else COMPONENTS


def head_parameters(head: str, dim: int) -> int:
    """Return how many parameters a head has more than the softmax."""
    if head == "softmax":
        return 0
    components = count_components(head)
    mixture = components * (dim + dim * (dim + 1))  # prior and latent
    return mixture if head in ("moc", "mos") else mixture + components * dim * dim


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
        if self.head.startswith("converted") and self.step == self.steps // 2:
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
            softmaxes = (model.head.softmaxes(h) for h in hidden())
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
        for head in (name for name in HEADS if not name.startswith("converted")):
            times[f"{key}-{head}"] = _step_ms(Trainer(arguments, head, data, 10**6, 0.1), arguments.timed)
        # A converted model is a softmax in the first half of its steps, and has the residual head in the second.
        for suffix in ("", "-1"):
            times[f"{key}-converted{suffix}"] = (times[f"{key}-softmax"] + times[f"{key}-residual{suffix}"]) / 2
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
        steps = max(1, round(steps * step_ms[f"{key}-softmax"] / step_ms[f"{key}-{head}"]))
    dropout = arguments.dropout
    if dropout is None:
        dropout = best_dropout(read_records(arguments.out), Path(arguments.corpus).name, arguments.dim)
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
        "n_components": count_components(head),
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
    write_json(arguments.out / f"{run_name(record)}.json", record)
    print({k: record[k] for k in ("head", "steps", "parameters", "valid_loss", "test_loss", "rank")}, flush=True)


def train_all(arguments: argparse.Namespace) -> None:
    """Measure the step times, tune the dropout on the softmax, train every head with it, and tabulate and draw."""
    if not (arguments.out / "step_ms.json").exists():
        measure_step_times(arguments)
    for corpus in arguments.corpora:
        load_data(corpus, arguments.data_dir, arguments.out)  # makes the pieces of text8 before all need them
    settings = [{"corpus": corpus, "dim": dim} for corpus in arguments.corpora for dim in arguments.dims]
    softmax = {"head": "softmax", "equal": "steps", "seed": 1}
    _train_missing(arguments, [{**setting, **softmax, "dropout": rate} for setting in settings for rate in DROPOUTS])
    records = read_records(arguments.out)
    jobs = []
    for setting, head, equal, seed in itertools.product(settings, HEADS, ("steps", "time"), (1, 2)):
        if (head, equal) != ("softmax", "time"):  # the same as its equal steps
            dropout = best_dropout(records, Path(setting["corpus"]).name, setting["dim"])
            jobs.append({**setting, "head": head, "equal": equal, "seed": seed, "dropout": dropout})
    _train_missing(arguments, jobs)
    write_table(arguments)
    draw(arguments)


def _train_missing(arguments: argparse.Namespace, jobs: list[dict[str, Any]]) -> None:
    """Train what has no record yet, `arguments.jobs` models at a time, each in a process of its own."""
    known = {run_name(record) for record in read_records(arguments.out)}
    names = ("data_dir", "device", "out", "layers", "steps", "lr", "analyzed")
    common = {name: value for name in names if (value := getattr(arguments, name)) is not None}

    def run(job: dict[str, Any]) -> None:
        if run_name({**job, "corpus": Path(job["corpus"]).name}) not in known:
            options = [f"--{name.replace('_', '-')}={value}" for name, value in {**common, **job}.items()]
            subprocess.run([sys.executable, __file__, "train", *options], check=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(run, jobs))  # raises the first error


# --- tables and figure ----------------------------------------------------------------------------------------------


Records = list[dict[str, Any]]


def run_name(record: dict[str, Any]) -> str:
    return "{corpus}-{dim}-{head}-{equal}-dropout{dropout}-seed{seed}".format(**record)


def read_records(folder: Path) -> Records:
    """Return the rows of the table in `folder`, if there is one, and the runs' records, sorted by their names."""
    table = folder / "transformer_heads.csv"
    records: Records = []
    if table.exists():
        with table.open(newline="") as file:
            records += [{name: _value(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    for path in folder.glob("*-seed*.json"):
        record = json.loads(path.read_text())
        records.append({**record, "curve": " ".join(f"{p['valid_loss']:.4f}" for p in record["curve"])})
    by_name = {run_name(record): record for record in records}  # a record replaces its row of an earlier table
    return [by_name[name] for name in sorted(by_name)]


def _value(cell: str) -> Any:
    """Return the number or text of a cell, or None if it is empty."""
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        return cell or None


def best_dropout(records: Records, corpus: str, dim: int) -> float:
    """Return the dropout of the best softmax of a corpus and size, by the last validation loss of its first seed."""
    softmaxes = [r for r in records if (r["corpus"], r["dim"], r["head"]) == (corpus, dim, "softmax")]
    if not softmaxes:
        raise SystemExit(f"no softmax was trained on {corpus} with D = {dim}: do it first, with --dropout")
    best = min(softmaxes, key=lambda r: (r["seed"], r["valid_loss"]))
    return float(best["dropout"])


Setting = tuple[str, int]  # corpus and D


def at_best_dropout(records: Records) -> dict[Setting, dict[tuple[str, str], Records]]:
    """Return the seeds of each head and comparison ("steps" or "time"), at the dropout that is best for the softmax."""
    settings: dict[Setting, dict[tuple[str, str], Records]] = {}
    for record in records:
        setting = (record["corpus"], record["dim"])
        if record["dropout"] == best_dropout(records, *setting):
            runs = settings.setdefault(setting, {})
            runs.setdefault((record["head"], record["equal"]), []).append(record)
    order = [*CORPORA, *(corpus for corpus, _ in settings)]
    return {setting: settings[setting] for setting in sorted(settings, key=lambda s: (order.index(s[0]), s[1]))}


def write_table(arguments: argparse.Namespace) -> None:
    """Write all records as one CSV file, and print losses and other measures at the best dropout as Markdown."""
    records = read_records(arguments.out)
    write_csv(arguments.out / "transformer_heads.csv", records)
    settings = at_best_dropout(records)
    columns = [("softmax", "steps"), *itertools.product(list(HEADS)[1:], ("steps", "time"))]
    columns = [column for column in columns if any(column in runs for runs in settings.values())]
    columns.sort(key=lambda column: column[1])
    titles = [HEADS[head] + (", equal time" if equal == "time" else "") for head, equal in columns]
    _print_row("corpus", "D", "dropout", *titles)
    _print_row(*["---"] * (3 + len(titles)))
    for (corpus, dim), runs in settings.items():
        softmax = runs["softmax", "steps"]
        label = f"{CORPORA.get(corpus, corpus)} (V = {softmax[0]['vocabulary']:,})"
        cells = [_losses(runs.get(column), softmax) for column in columns]
        _print_row(label, dim, f"{softmax[0]['dropout']:g}", *cells)
    print()
    measures = {"step_ms": ".2f", "rank": ".0f", "effective_rank": ".1f", "gradient_share": ".3f", "reach": ".2f"}
    print("Means over seeds, at equal steps:", ", ".join(HEADS.values()), end="\n\n")
    _print_row("corpus", "D", *measures)
    _print_row(*["---"] * (2 + len(measures)))
    for (corpus, dim), runs in settings.items():
        means = [[_mean(runs.get((head, "steps")), name, form) for head in HEADS] for name, form in measures.items()]
        _print_row(corpus, dim, *(", ".join(cells) for cells in means))


def _print_row(*cells: object) -> None:
    print("|", " | ".join(str(cell) for cell in cells), "|")


def _losses(records: Records | None, softmax: Records) -> str:
    """Return the validation losses of all seeds, bold if all of them are below those of the softmax."""
    if not records:
        return "not run"
    losses = [r["valid_loss"] for r in records]
    text = " / ".join(f"{loss:.3f}" for loss in losses)
    return f"**{text}**" if max(losses) < min(r["valid_loss"] for r in softmax) else text


def _mean(records: Records | None, name: str, form: str) -> str:
    values = [r[name] for r in records or [] if r[name] is not None]
    return format(sum(values) / len(values), form) if values else "-"


def draw(arguments: argparse.Namespace) -> None:
    """Draw the loss of each head minus that of the softmax: one dot per seed, corpora and sizes side by side."""
    settings = at_best_dropout(read_records(arguments.out))
    colours = {**HEAD_COLOURS, "residual": SKY, "residual-1": SKY, "converted": PURPLE, "converted-1": PURPLE}
    names = {**HEADS, "mos": "MoS from scratch", "residual": "residual MoS from scratch"}
    names["converted"] = "softmax, converted to residual MoS at half time"
    trained = [head for head in list(HEADS)[1:] if any((head, "steps") in runs for runs in settings.values())]
    figure, panels = pyplot().subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for panel, equal in zip(panels, ("steps", "time"), strict=True):
        panel.axhline(0, color=colours["softmax"], label=names["softmax"])
        for i, head in enumerate(trained):
            shift = 0.54 * (i / max(1, len(trained) - 1) - 0.5)  # dots of one corpus side by side
            points = []
            for x, runs in enumerate(settings.values()):
                softmax = [r["valid_loss"] for r in runs["softmax", "steps"]]
                for record in runs.get((head, equal), []):
                    points.append((x + shift, record["valid_loss"] - sum(softmax) / len(softmax)))
            if points:
                fill = "none" if head.endswith("-1") else "full"
                style: dict[str, Any] = {"color": colours[head], "label": names[head], "fillstyle": fill}
                panel.plot(*zip(*points, strict=True), "o", alpha=0.8, **style)
        panel.set_xticks(range(len(settings)), [f"{corpus}\nD = {dim}" for corpus, dim in settings], fontsize=8)
        panel.set_title(f"equal {equal}, equal parameters", fontsize=10)
    panels[0].set_ylabel("validation loss minus the softmax's, nats")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=3, loc="outside lower center")
    save_figure(figure, [arguments.out / "transformers.png"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("all", "time", "train", "table", "draw"))
    parser.add_argument("--corpus", default="penn")
    parser.add_argument("--corpora", nargs="+", default=["penn", "wikitext-2", "text8"], help="for all and time")
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256], help="for all and time")
    parser.add_argument("--jobs", type=int, default=12, help="for all: trainings at the same time")
    parser.add_argument("--timed", type=int, default=30, help="for time: steps per head")
    parser.add_argument("--head", choices=list(HEADS), default="softmax")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3000, help="steps of the softmax")
    parser.add_argument("--equal", choices=("steps", "time"), default="steps")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--analyzed", type=int, default=ANALYZED, help="tokens for rank and gradient share")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("transformer_heads"))
    arguments = parser.parse_args()
    commands = {"all": train_all, "time": measure_step_times, "train": train, "table": write_table, "draw": draw}
    commands[arguments.command](arguments)


if __name__ == "__main__":
    main()
