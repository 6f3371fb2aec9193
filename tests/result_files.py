"""Makes results folders for the tests of the report: run records and analyses."""

import json

from highrank.recipes import get_recipe, override

PROVENANCE = {
    "highrank": "0", "commit": "abc", "python": "3", "torch": "2", "machine": "NVIDIA H200", "started": "10:00",
}  # fmt: skip


def piece(epoch=0, commit="abc", machine="NVIDIA H200"):
    """Return a start of training."""
    start = {"epoch": epoch, "seconds": 100.0 * epoch, "time_budget": 600.0, "outcome": "time-budget"}
    return {**PROVENANCE, "commit": commit, "machine": machine, **start, "exported": None}


def stage(number=0, epochs=3, valid=70.0, seconds=590.0):
    scores = {"valid_ppl": valid, "test_ppl": valid - 2}
    return {"stage": number, "epochs": epochs, "best_epoch": epochs, "seconds": seconds, **scores}


def run_record(recipe="ptb-mos", settings=(), valid=70.0, **changes):
    """Return a record as `highrank record` writes it, of a run of three epochs in about ten minutes."""
    resolved = json.loads(json.dumps(override(get_recipe(recipe), list(settings)).resolved()))
    epochs = changes.get("epochs", 3)
    seconds = changes.get("seconds", 590.0)
    record = {
        "recipe": recipe, "outcome": "time-budget", "epochs": epochs, "updates": 9,
        "best_epoch": 3, "stage": 0, "stages": [stage(0, epochs, valid, seconds)], "parameters": 9, "valid_ppl": valid,
        "test_ppl": valid - 2, "seconds": seconds, "pieces": [piece()], "skipped": 0, "seed": 28,
        "provenance": PROVENANCE, "settings": resolved, "averaged_from": 2,
        "curve": curve([1, 2, 3], [None, valid + 3, valid]),
    }  # fmt: skip
    return {**record, **changes}


def curve(epochs, valid):
    return {"epoch": epochs, "seconds": [200.0 * e for e in epochs], "train_ppl": valid, "valid_ppl": valid}


def adaptation(valid):
    """Return the results of dynamic evaluation."""
    settings = {"lr": 0.002, "lamb": 0.075, "epsilon": 0.001, "segment": 5, "stats_batch_size": 100}
    scores = {"valid_ppl": valid, "test_ppl": valid - 1, "seconds": 70.0}
    return {"settings": settings, **scores, "provenance": None, "tuning": None}


def analysis(split="test", rank=9970, recipe="ptb-mos", k=15, head="mos", tokens=20_000, **changes):
    """Return an analysis of one model as `highrank analyze` writes it."""
    model = {
        "name": "x", "run": "x", "recipe": recipe, "head": head, "n_components": k, "embed_dim": 280, "epochs": 3,
        "valid_ppl": 60.0, "test_ppl": 58.0, "rank_bound": 10_000, "rank": rank, "effective_rank": 50.0,
        "tolerance": 1e-9, "spectrum": {"values": [2.0, 1.0, 0.1],
        "index": [1, 2, 9]}, "kld": {"mean": 5.2, "standard_error": 0.01, "contexts": 100}, "perplexity": 58.0,
        "seconds": {}, "peak_bytes": 1,
    }  # fmt: skip
    return {
        "kind": "analysis", "corpus": "penn", "corpus_fingerprint": "x", "split": split, "tokens": tokens,
        "vocabulary": 10_000, "seed": 0, "models": [{**model, **changes}], "provenance": PROVENANCE,
    }  # fmt: skip


def write_results(folder, runs=None, analyses=None):
    """Write records by name into a results folder, and return it."""
    for kind, records in (("runs", runs or {}), ("analysis", analyses or {})):
        for name, record in records.items():
            path = folder / kind / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record))
    return folder
