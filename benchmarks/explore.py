"""How long does the page of `highrank explore` take to appear, and to answer a keystroke?

    python benchmarks/explore.py                          the paper's Penn Treebank model, random weights
    python benchmarks/explore.py --run runs/ptb-mos       a trained run

Times the server over HTTP on a text of 50 words, and first paint and keystrokes in Chromium where it is installed
(a keystroke ends when the words have their new colours). "From nothing" reads the same text without any kept state.
`cpu_ms` is the processor time of the first answer, which other processes on the machine hardly change.
"""

import argparse
import http.client
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from highrank.data.corpus import Corpus
from highrank.explore.explorer import Explorer
from highrank.explore.model import open_model
from highrank.explore.server import create_app, listen, new_server
from highrank.models import build_model
from highrank.recipes import get_recipe
from highrank.runs import checkpoint as checkpoints
from highrank.runs.folder import Run
from highrank.runs.provenance import provenance
from highrank.training.checkpoint import Checkpoint
from highrank.training.state import TrainingState
from measure import write_csv

CPU = torch.device("cpu")
VOCABULARY = 10_000
WORDS = 50

# Types `text` into the page, a character at a time, and returns the milliseconds until its words were drawn again.
TYPING = """
const [text, done] = arguments;
const area = document.getElementById("text");
const drawn = () => document.getElementById("copy").textContent.replace("\\u200b", "") === area.value;
const times = [];
for (const character of text) {
  const start = performance.now();
  area.setRangeText(character, area.value.length, area.value.length, "end");
  area.dispatchEvent(new Event("input"));
  while (!drawn()) await new Promise(requestAnimationFrame);
  times.push(performance.now() - start);
}
done(times);
"""


def random_run(folder: Path, recipe_name: str) -> None:
    """Make a run with random weights, and a vocabulary of made-up words."""
    words = ["<eos>", "<unk>", *(f"w{i}" for i in range(VOCABULARY - 2))]
    recipe = get_recipe(recipe_name)
    run = Run(folder)
    run.create(recipe, Corpus("made-up", "word", words, {}, "made-up"), CPU, None)
    weights = {name: p.detach() for name, p in build_model(recipe.model, VOCABULARY).named_parameters()}
    tensors = {f"weights/{name}": tensor for name, tensor in weights.items()} | {"rng/torch": torch.get_rng_state()}
    state = TrainingState(epoch=1, step=1, best_epoch=1, best_valid=1.0)
    checkpoints.save(folder, Checkpoint(state, tensors, weights), [], 0)


class Client:
    """One tab: a connection that stays open."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def read(self, text: str, cursor: int) -> tuple[float, float, float]:
        """Return the milliseconds until the first answer, its processor time, and the time of the whole text."""
        start = time.perf_counter()
        cpu_start = time.process_time()
        first = 0.0
        cpu = 0.0
        complete = False
        while not complete:
            body = json.dumps({"model": 0, "text": text, "cursor": cursor})
            self.connection.request("POST", "/read", body, {"Content-Type": "application/json"})
            complete = json.load(self.connection.getresponse())["complete"]
            cpu = cpu or time.process_time() - cpu_start
            first = first or time.perf_counter() - start
        return 1e3 * first, 1e3 * cpu, 1e3 * (time.perf_counter() - start)


def measure_server(port: int, words: list[str], rounds: int) -> list[dict[str, Any]]:
    """Time keystrokes at the end, in the middle and at the start of a text, and reading it from nothing."""
    client = Client(port)
    times: dict[str, list[tuple[float, float, float]]] = {}
    for i in range(rounds):
        text = " ".join([words[i], *words[rounds : rounds + WORDS - 1]])  # a new first word: nothing is kept
        times.setdefault("from nothing", []).append(client.read(text, len(text)))
        times.setdefault("cursor moved", []).append(client.read(text, 7 * (i + 1)))
        for length in range(len(text) - 5, len(text) + 1):
            times.setdefault("letter typed at the end", []).append(client.read(text[:length], length))
        split = text.split()
        for place, at in (("in the middle", WORDS // 2), ("at the start", 0)):
            changed = " ".join([*split[:at], words[-1 - i], *split[at + 1 :]])
            times.setdefault(f"word changed {place}", []).append(client.read(changed, len(changed) // 2))
    client.connection.close()
    rows = []
    for name, measured in times.items():
        first, cpu, whole = zip(*measured, strict=True)
        medians = {"cpu_ms": cpu, "whole_text_ms": whole}
        rows.append(
            {"what": name, **quantiles(first), **{key: round(statistics.median(t), 1) for key, t in medians.items()}}
        )
    return rows


def measure_browser(port: int, words: list[str]) -> list[dict[str, Any]]:
    """Time the first paint of the page, and letters typed at the end of a text of 50 words."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("headless=new", "no-sandbox", "disable-gpu"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.set_script_timeout(300)
        paints = []
        for _ in range(5):
            browser.get("about:blank")
            browser.get(f"http://127.0.0.1:{port}/#text={'%20'.join(words[:WORDS])}")
            while not browser.execute_script("return document.body.dataset.ready"):
                time.sleep(0.1)
            paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(browser.execute_script(paint))
        keys = browser.execute_async_script(
            f"(async (...arguments) => {{{TYPING}}})(...arguments)", "".join(f" {word}" for word in words[WORDS:][:6])
        )
    finally:
        browser.quit()
    return [{"what": "browser: first paint", **quantiles(paints)}, {"what": "browser: letter typed", **quantiles(keys)}]


def quantiles(times: Any) -> dict[str, Any]:
    ordered = sorted(times)
    return {
        "samples": len(ordered),
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a trained run; default: random weights")
    parser.add_argument("--recipe", default="ptb-mos", help="recipe of the random weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=Path("explore.csv"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.run is None:
            random_run(Path(folder) / "run", arguments.recipe)
        model = open_model(arguments.run or Path(folder) / "run", CPU)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, len(model.words), (4 * WORDS,), generator=generator).tolist()
    words = [model.words[i] for i in ids]
    server = new_server(create_app([Explorer(model)]))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            port = listener.getsockname()[1]
            rows = measure_server(port, words, arguments.rounds)
            if shutil.which("chromium") and shutil.which("chromedriver"):
                rows += measure_browser(port, words)
        finally:
            server.should_exit = True
            thread.join()
    for row in rows:
        row["load"] = round(os.getloadavg()[0], 1)  # of this machine: other processes slow all of these down
        row.update(provenance(CPU))
        print({key: row.get(key) for key in ("what", "samples", "median_ms", "p95_ms", "cpu_ms")}, flush=True)
    write_csv(arguments.csv, rows)
    print(f"Written to {arguments.csv}")


if __name__ == "__main__":
    main()
