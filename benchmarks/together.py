"""Trains several models at the same time on one GPU, and records them.

    nvidia-cuda-mps-control -d      # once: processes share the GPU instead of taking turns
    python benchmarks/together.py characters --time-budget 25m --data-dir corpora --out together
    python benchmarks/together.py "ptb-mos-plus train.seed=29" "ptb-doc" --time-budget 25m --data-dir corpora --out mine

A small model leaves most of a large GPU idle, because an LSTM waits for its own last step. An argument is one of the
EXPERIMENTS below, or a recipe with its settings. Each run is an ordinary `highrank train`, with its console in
OUT/NAME.log. The same command continues all runs for another time budget, and SIGTERM or Ctrl-C pauses them.

At the end, OUT/records has the records for `highrank report`, and with `--export` OUT/exports the best weights in
float16. The times in these records are those of a shared GPU.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from highrank.runs.folder import Run

# With this seed and these columns, new runs can be compared with those in docs/recipes.md.
PLUS = "ptb-mos-plus train.seed=29 train.eval_batch_size=40"
EXPERIMENTS = {
    "characters": [  # the paper's table 12, and two controls of docs/characters.md
        "text8-softmax",
        "text8-mos7",
        "text8-mos7-equal",
        "text8-mos10",
        "text8-mos10-equal",
        "text8-mos7 model.head=moc",
        "text8-softmax model.tied=false",
    ],
    "dialog": [f"swda-{head} train.seed={seed}" for head in ("softmax", "moc", "mos") for seed in (1, 2)],  # table 4
    "heads": ["ptb-softmax", "ptb-moc", "wt2-softmax", "wt2-moc", "wt2-softmax-mos-hparams"],  # table 5
    "components": [f"{PLUS} model.n_components={k}" for k in (3, 5, 10, 15, 20)],  # table 7, after 90 epochs
    "additions": [  # docs/recipes.md
        f"{PLUS} model.shared_latent_mask=true model.dropout_latent=0.6",
        f"{PLUS} model.shared_latent_mask=true",
        f"{PLUS} train.input_noise=0.15",
        f"{PLUS} train.adversarial=0.01",
        "ptb-doc train.seed=29 train.eval_batch_size=40 train.averaging=two-tailed train.partial_shuffle=true",
    ],
    "sampled": [PLUS, f"{PLUS} train.sample_below=0.25", f"{PLUS} train.sample_below=1"],  # docs/performance.md
}
REPORT_EVERY = 60.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{', '.join(EXPERIMENTS)}, or a recipe with settings")
    parser.add_argument("--time-budget", default="25m", help="of each run, as for 'highrank train'")
    parser.add_argument("--max-epochs", type=int, help="of each run, as for 'highrank train'")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("together"))
    parser.add_argument("--export", action="store_true", help="also export the best weights of each run")
    arguments = parser.parse_args()
    runs = {run_name(line): line for name in arguments.runs for line in EXPERIMENTS.get(name, [name])}
    data = ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
    arguments.out.mkdir(parents=True, exist_ok=True)
    options = ["--time-budget", arguments.time_budget, *data]
    if arguments.max_epochs:
        options += ["--max-epochs", str(arguments.max_epochs)]
    processes = {name: start_training(line, arguments.out / name, options) for name, line in runs.items()}
    wait(processes, arguments.out)
    results = []
    for name in processes:
        folder = arguments.out / name
        if Run(folder).model_file is not None:  # otherwise the first epoch was not completed
            results.append(highrank("record", folder, "--out", arguments.out / "records", *data))
            if arguments.export:
                export = arguments.out / "exports" / name
                shutil.rmtree(export, ignore_errors=True)  # of an earlier call
                results.append(highrank("export", folder, "--averages-only", "--out", export))
    for process in results:
        process.wait()
    if names := [name for name, process in processes.items() if failed(process)]:
        raise SystemExit(f"failed, see their logs in {arguments.out}: {', '.join(names)}")


def run_name(line: str) -> str:
    """Return a recipe and its settings as the name of a folder, such as ptb-mos-plus-seed-29."""
    recipe, *settings = line.split()
    return "-".join([recipe, *(setting.partition(".")[2].replace("=", "-") for setting in settings)]).replace("/", "-")


def start_training(line: str, folder: Path, options: list[str]) -> "subprocess.Popen[bytes]":
    """Start a run, or continue it if it exists."""
    recipe, *settings = line.split()
    resume = ["--resume"] if Run(folder).exists() else []
    overrides = [word for setting in settings for word in ("--set", setting)]
    with Path(f"{folder}.log").open("a") as log:
        command = ("train", recipe, "--out", folder, *resume, *overrides, *options)
        return highrank(*command, stdout=log, stderr=subprocess.STDOUT)


def highrank(*arguments: object, **options: Any) -> "subprocess.Popen[bytes]":
    # The CUDA graphs of many window lengths fragment the memory of a process without expandable segments.
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **os.environ}
    return subprocess.Popen([sys.executable, "-m", "highrank", *map(str, arguments)], env=environment, **options)


def wait(processes: "dict[str, subprocess.Popen[bytes]]", out: Path) -> None:
    """Wait for all processes and print their progress. A signal to this process pauses them."""

    def pause(*_: object) -> None:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)  # background processes may ignore SIGINT

    signal.signal(signal.SIGTERM, pause)
    signal.signal(signal.SIGINT, pause)
    reported = time.monotonic()
    while any(process.poll() is None for process in processes.values()):
        time.sleep(1)
        if time.monotonic() - reported >= REPORT_EVERY:
            reported = time.monotonic()
            for name, process in processes.items():
                print(f"{name}: {'failed' if failed(process) else last_epoch(out / name)}", flush=True)


def failed(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a training has ended with an error."""
    return process.poll() not in (None, 0, 130)  # 130: paused by a signal


def last_epoch(folder: Path) -> str:
    """Return the last epoch of a run and its validation perplexity."""
    epochs = Run(folder).epochs()
    return f"epoch {epochs[-1].epoch}, valid {epochs[-1].valid_ppl:.3f}" if epochs else "in its first epoch"


if __name__ == "__main__":
    main()
