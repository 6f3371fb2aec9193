"""The command line as a user meets it: what works, and one sentence with exit code 2 for what does not."""

import dataclasses
import json
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers import PROCESS_TIMEOUT, as_process, fails, highrank, settings
from highrank.runs import checkpoint as checkpoints


def test_train_evaluate_generate_runs(place, trained):
    done = highrank("evaluate", "run", "--split", "valid", "--json", cwd=place)
    result = json.loads(done.stdout)
    summary = json.loads((trained / "summary.json").read_text())
    assert result["perplexity"] == pytest.approx(summary["valid_ppl"])
    assert "test perplexity" in highrank("evaluate", "run", cwd=place).stdout

    texts = [
        highrank("generate", "run", "--prompt", "the cat", "--length", 8, "--seed", s, cwd=place).stdout
        for s in (3, 3, 4)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("the cat")

    rows = json.loads(highrank("runs", ".", "--json", cwd=place).stdout)
    assert [(r["run"], r["recipe"], r["epoch"], r["state"]) for r in rows] == [("run", "ptb-mos", 1, "can resume")]
    assert "can resume" in highrank("runs", ".", cwd=place).stdout

    done = highrank("train", "ptb-mos", "--out", "run", "--resume", cwd=place)
    assert "\nepoch   3: train " in done.stdout
    assert "Written to run" in done.stdout


def test_dynamic_evaluation_changes_no_file_of_the_run(place, trained):
    before = {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}
    plain = json.loads(highrank("evaluate", "run", "--json", cwd=place).stdout)
    for _ in range(2):  # the second time from cached statistics
        done = highrank("evaluate", "run", "--dynamic", "--lr", 0.01, "--lambda", 0.1, "--json", cwd=place)
        result = json.loads(done.stdout)
    assert result["dynamic"] == {"lr": 0.01, "lamb": 0.1, "epsilon": 0.001, "segment": 5, "stats_batch_size": 100}
    assert result["perplexity"] != plain["perplexity"]
    assert result["tokens"] == plain["tokens"]
    assert before == {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}
    assert "--lr belongs to --dynamic: add that" in fails("evaluate", "run", "--lr", 1, cwd=place)
    assert "--lambda belongs to" in fails("evaluate", "run", "--lambda", 1, cwd=place)
    assert "--lambda must be positive" in fails("evaluate", "run", "--dynamic", "--lambda", 0, cwd=place)




@pytest.mark.parametrize("how", ["dynamic", "cache"])
def test_settings_are_tuned_on_validation(place, trained, how):
    arguments = ("evaluate", "run", f"--{how}", "--tune", "--tune-tokens", 60)
    done = highrank(*arguments, cwd=place)
    assert "points tried on 60 tokens of valid" in done.stdout
    result = json.loads(highrank(*arguments, "--json", cwd=place).stdout)
    assert result[how] == result["tuned"]["best"]
    assert result["tuned"]["tried"][0]["perplexity"] == min(p["perplexity"] for p in result["tuned"]["tried"])
    again = [part for key, value in result[how].items() for part in (f"--{key.replace('lamb', 'lambda')}", value)]
    again = again[: again.index("--stats_batch_size")] if how == "dynamic" else again
    plain = json.loads(highrank("evaluate", "run", f"--{how}", *again, "--json", cwd=place).stdout)
    assert plain["perplexity"] == pytest.approx(result["perplexity"])  # of the split asked for, with the best
    assert ("At an edge of what was tried" in done.stdout) == bool(result["tuned"]["at_edge"])
    assert "--tune belongs to" in fails("evaluate", "run", "--tune", cwd=place)
    assert "--tune-tokens belongs to" in fails("evaluate", "run", f"--{how}", "--tune-tokens", 60, cwd=place)


def test_a_search_that_ends_at_an_edge_says_how_to_go_on(place, trained, monkeypatch):
    monkeypatch.setattr("highrank.evaluation.tune.MOST_POINTS", 1)
    monkeypatch.setattr("highrank.evaluation.tune.WINDOWS", (0.0,))
    monkeypatch.setattr("highrank.evaluation.tune.THETAS", (0.0,))
    monkeypatch.setattr("highrank.evaluation.tune.MOST_ROUNDS", 1)
    trained.rename(place / "my run")
    done = highrank("record", "my run", "--dynamic", "--cache", "--tune", "--tune-tokens", 60, cwd=place)
    made = json.loads((place / "results" / "runs" / "my run.json").read_text())
    told = done.stdout.splitlines()
    for how, knobs in {"dynamic": ("lr", "lamb", "epsilon"), "cache": ("theta",)}.items():
        tuning = made[f"{how}_tuned"]["tuning"]
        assert {knob: tuning["at_edge"][knob] for knob in knobs} == dict.fromkeys(knobs, "only")
        line = next(
            i for i, line in enumerate(told) if line.startswith(f"  highrank evaluate 'my run' --{how} --tune ")
        )
        edge = f"At an edge of what was tried: {knobs[0]} {tuning['best'][knobs[0]]} (the only one)"
        assert told[line - 1].startswith(edge)
        again = highrank(*shlex.split(told[line])[1:], cwd=place)
        assert edge in again.stdout  # 'evaluate' says it in the same words
        assert "tried on 60 tokens of valid" in again.stdout
    tune = ("--dynamic", "--tune", "--tune-tokens", 60, "--segment", 7, "--data-dir", "toy")
    on = highrank("evaluate", "my run", *tune, cwd=place).stdout.split("search on from there")[1]
    assert on.splitlines()[1].endswith("--segment 7 --tune-tokens 60 --data-dir toy")


def test_record(place, trained):
    done = highrank("record", "run", "--dynamic", "--cache", cwd=place)
    assert "Written to results/runs/run.json" in done.stdout
    made = json.loads((place / "results" / "runs" / "run.json").read_text())
    summary = json.loads((trained / "summary.json").read_text())
    assert made == summary | {"dynamic": made["dynamic"], "cache": made["cache"]}
    assert f"dynamic: valid {made['dynamic']['valid_ppl']:.2f}" in done.stdout
    result = json.loads(highrank("evaluate", "run", "--dynamic", "--split", "valid", "--json", cwd=place).stdout)
    assert made["dynamic"]["valid_ppl"] == pytest.approx(result["perplexity"])
    assert made["overrides"]["model.n_components"] == 3
    assert "--tune belongs to" in fails("record", "run", "--tune", cwd=place)
    assert "--tune-tokens belongs to" in fails("record", "run", "--cache", "--tune-tokens", 9, cwd=place)
    done = highrank("record", "run", cwd=place)  # again, without: what it has stays
    assert "dynamic: valid" in done.stdout
    assert json.loads((place / "results" / "runs" / "run.json").read_text()) == made
    old = {key: value for key, value in made.items() if key not in ("stages", "updates", "overrides", "pieces")}
    (place / "old.json").write_text(json.dumps(old))  # as the first version wrote them
    assert "dynamic: valid" in highrank("record", "run", "--cache", "--out", "old.json", cwd=place).stdout
    assert json.loads((place / "old.json").read_text()).keys() == old.keys()
    del old["dynamic"]["test_ppl"]  # cut off there
    (place / "old.json").write_text(json.dumps(old))
    assert (
        f"dynamic: valid {made['dynamic']['valid_ppl']:.2f}; cache: valid"
        in highrank("record", "run", "--out", "old.json", cwd=place).stdout
    )
    (place / "other.json").write_text("{}")
    assert "other.json holds something other than" in fails("record", "run", "--out", "other.json", cwd=place)
    (place / "taken").write_text("a file")
    assert "taken is a file" in fails("record", "run", "--out", "taken", cwd=place)
    assert "there is no run at nowhere" in fails("record", "nowhere", cwd=place)
    (trained / "model.safetensors").unlink()
    assert "no trained weights yet" in fails("record", "run", cwd=place)


def test_a_record_of_a_later_state_is_not_overwritten(place, trained):
    """A copy was carried elsewhere and trained on: its record has what this run cannot make again."""
    shutil.copytree(trained, place / "copy")
    highrank("train", "ptb-mos", "--resume", "--out", "copy", "--max-epochs", 2, cwd=place)
    highrank("record", "copy", "--cache", "--out", "mine.json", cwd=place)
    before = (place / "mine.json").read_bytes()
    said = "mine.json tells of a later state of this run, after 2 epochs: choose another --out"
    assert said in fails("record", "run", "--out", "mine.json", cwd=place)
    assert (place / "mine.json").read_bytes() == before
    highrank("record", "run", "--out", "earlier.json", cwd=place)
    highrank("record", "copy", "--out", "earlier.json", cwd=place)  # trained further: made anew
    assert json.loads((place / "earlier.json").read_text())["epochs"] == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"provenance": None}, "holds something other than a record of this run"),
        ({"provenance": []}, "holds something other than a record of this run"),
        ({"recipe": None}, "mine.json is a damaged record: its recipe is not text; remove it or choose another --out"),
        ({"valid_ppl": "low"}, "damaged record: its valid_ppl is not a number"),
        ({"cache": {"valid_ppl": "low"}}, "damaged record: its cache.valid_ppl is not a number"),
        ({"cache_tuned": {"tuning": {}}}, "damaged record: its cache_tuned.tuning lacks at_edge, best, tokens"),
        ({"cache": None, "stages": None}, ""),
    ],
    ids=str,
)
def test_a_damaged_record_is_told_in_one_sentence(place, trained, change, sentence):
    highrank("record", "run", "--out", "mine.json", cwd=place)
    record = place / "mine.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    if sentence:
        assert sentence in fails("record", "run", "--cache", "--out", "mine.json", cwd=place)
    else:
        assert "cache: valid" in highrank("record", "run", "--cache", "--out", "mine.json", cwd=place).stdout


def test_brackets_in_a_folders_name_are_no_markup(place, trained):
    odd = place / "odd" / "a[red]"
    shutil.copytree(trained, odd)
    assert "odd/a[red]: test perplexity" in highrank("evaluate", "odd/a[red]", cwd=place).stdout
    assert "a[red]" in highrank("runs", "odd", cwd=place).stdout
    done = highrank("train", "ptb-mos", "--out", "odd/a[red]", "--resume", "--max-epochs", 1, cwd=place)
    assert "ptb-mos on cpu: odd/a[red]" in done.stdout


def test_cache_evaluation(place, trained):
    plain = json.loads(highrank("evaluate", "run", "--json", cwd=place).stdout)
    result = json.loads(highrank("evaluate", "run", "--cache", "--window", 50, "--json", cwd=place).stdout)
    assert result["cache"] == {"window": 50, "theta": 1.0, "lamb": 0.1}
    assert result["tokens"] == plain["tokens"]
    assert result["perplexity"] != plain["perplexity"]
    assert "with a cache" in highrank("evaluate", "run", "--cache", cwd=place).stdout
    assert "choose one" in fails("evaluate", "run", "--cache", "--dynamic", cwd=place)
    assert "must be below 1" in fails("evaluate", "run", "--cache", "--lambda", 1.5, cwd=place)
    assert "--window belongs to --cache" in fails("evaluate", "run", "--window", 5, cwd=place)
    whole = [highrank("evaluate", "run", "--cache", "--window", size, cwd=place).stdout for size in (10**5, 10**30)]
    assert len({text.split("(")[0] for text in whole}) == 1  # as long as the text is all there is to remember


def test_export_and_import(place, trained):
    done = highrank("export", "run", "--out", "export", "--averages-only", cwd=place)
    assert "export is an export, not a run" in fails("record", "export", cwd=place)
    assert re.search(r"^Written to export \(\d+ files, \d+\.\d MB\)$", done.stdout, flags=re.M)
    assert "  highrank import export\n" in done.stdout
    done = highrank("import", "export", "--out", "again", cwd=place)
    assert "Written to again (ptb-mos at epoch 1)\nContinue with:" in done.stdout
    command = next(line.strip() for line in done.stdout.splitlines() if line.startswith("  highrank train"))
    highrank(*command.split()[1:], "--max-epochs", 2, cwd=place)
    assert "is not a size" in fails("export", "run", "--out", "x", "--max-shard-size", "big", cwd=place)
    assert "dtype" in fails("export", "run", "--out", "x", "--dtype", "int8", cwd=place)
    assert "there is no export" in fails("import", "toy", "--out", "x", cwd=place)
    assert [row["run"] for row in json.loads(highrank("runs", ".", "--json", cwd=place).stdout)] == ["again", "run"]


def test_an_export_and_a_run_have_folders_of_their_own_by_default(place, trained):
    trained.rename(place / "a run")
    done = highrank("export", "a run", "--dtype", "float16", "--max-shard-size", "15MB", cwd=place)
    assert "Written to exports/a run (" in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  highrank import"))
    done = highrank(*shlex.split(command)[1:], cwd=place)
    assert "Written to runs/a run (ptb-mos at epoch 1)" in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  highrank train"))
    done = highrank(*shlex.split(command)[1:], "--max-epochs", 1, cwd=place)
    assert "highrank train ptb-mos --out 'runs/a run' --resume" in done.stdout
    assert "exports/a run is not empty: choose another --out" in fails("export", "a run", cwd=place)
    assert "runs/a run already holds a run" in fails("import", "exports/a run", cwd=place)


def test_default_folders_are_numbered_and_found_again(place):
    arguments = ("train", "ptb-mos", *settings(), "--set", "data.corpus=toy", "--max-epochs", 1)
    highrank(*arguments, cwd=place)
    highrank(*arguments, cwd=place)
    assert sorted(p.name for p in (place / "runs").iterdir()) == ["ptb-mos", "ptb-mos-2"]
    assert "runs/ptb-mos-2" in highrank("train", "ptb-mos", "--resume", "--max-epochs", 2, cwd=place).stdout
    done = highrank("train", "ptb-mos", "--resume", "--finetune", "--max-epochs", 3, cwd=place)
    assert "stage 0 is over: finetuning from the weights of epoch" in done.stdout
    assert "\nepoch   3 finetune-1: train " in done.stdout


def test_characters(place):
    extra = "data.corpus=toy data.level=char"
    highrank("train", "ptb-mos", *settings(extra), "--out", "run", "--max-epochs", 1, cwd=place)
    assert highrank("generate", "run", "--prompt", "the c", "--length", 5, cwd=place).stdout.startswith("the c")












# --- exact resume ---------------------------------------------------------------------------------------------------


def start(*arguments, cwd):
    command = [sys.executable, "-m", "highrank", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def same_run(a: Path, b: Path) -> None:
    one, two = checkpoints.load(a), checkpoints.load(b)
    for x, y in ((one.weights, two.weights), (one.averages or {}, two.averages or {})):
        assert x.keys() == y.keys()
        assert all(torch.equal(x[k], y[k]) for k in x)
    assert torch.equal(one.torch_rng, two.torch_rng)
    assert (one.n_averaged, one.window_rng) == (two.n_averaged, two.window_rng)
    for progress in (one.progress, two.progress):
        progress.stages = [{**stage, "seconds": 0.0} for stage in progress.stages]
    timeless = {"seconds": 0.0, "metrics_bytes": 0, "pieces": []}
    assert dataclasses.replace(one.progress, **timeless) == dataclasses.replace(two.progress, **timeless)
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()


def test_a_killed_run_ends_bit_for_bit_where_the_whole_one_does(place):
    """SIGKILL, again and again, at whatever moment it hits, then --resume."""
    extra = "data.corpus=toy train.nonmono=1 train.max_epochs=8 train.micro_batch_size=2"
    extra += " train.finetunes=1 train.finetune_max_epochs=4"
    arguments = ("train", "ptb-mos", *settings(extra), "--checkpoint-every", 0)
    highrank(*arguments, "--out", "whole", cwd=place)
    process = start(*arguments, "--out", "cut", cwd=place)
    kills = 0
    for delay in (0.05, 0.4, 0.15, 0.3):
        while not (place / "cut" / "checkpoint.json").exists() and process.poll() is None:
            time.sleep(0.01)
        before = checkpoints.load_progress(place / "cut").step
        while process.poll() is None and checkpoints.load_progress(place / "cut").step == before:
            time.sleep(0.005)  # it has started again and gone further
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        process = start("train", "ptb-mos", "--out", "cut", "--resume", "--checkpoint-every", 0, cwd=place)
    output, _ = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 0, output
    assert kills >= 2
    assert checkpoints.load_progress(place / "cut").finished
    same_run(place / "whole", place / "cut")


def test_ctrl_c_saves_and_says_how_to_resume(place):
    arguments = ("train", "ptb-mos", *settings("data.corpus=toy train.max_epochs=100000"), "--out", "run")
    process = start(*arguments, "--checkpoint-every", 0.5, cwd=place)
    while not (place / "run" / "checkpoint.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PROCESS_TIMEOUT)
    assert process.returncode == 130
    command = next(line.strip() for line in output.splitlines() if line.startswith("  highrank train"))
    step = checkpoints.load_progress(place / "run").step
    highrank(*command.split()[1:], "--time-budget", "0.2s", cwd=place)
    assert checkpoints.load_progress(place / "run").step > step


def test_characters_from_nothing(place):
    extra = "data.corpus=toy data.level=char"
    highrank("train", "ptb-mos", *settings(extra), "--out", "run", "--max-epochs", 1, cwd=place)
    assert highrank("generate", "run", "--length", 5, cwd=place).stdout


def test_a_folder_corpus_is_found_from_anywhere(place, trained):
    (place / "elsewhere").mkdir()
    highrank("evaluate", "../run", cwd=place / "elsewhere")


def test_training_goes_on_where_the_text_lies_elsewhere(place, monkeypatch):
    """As on the machine that a run was carried to, where there is no such folder as it remembers."""
    shutil.copytree(place / "toy", place / "here" / "penn")
    arguments = ("train", "ptb-mos", "--out", "run", "--max-epochs", 1)
    highrank(*arguments, *settings("data.level=char"), "--data-dir", "here", cwd=place)
    (place / "here").rename(place / "there")
    assert "the corpus penn was not found in" in fails(*arguments, "--resume", cwd=place)
    monkeypatch.setenv("HIGHRANK_DATA", str(place / "there"))
    highrank(*arguments, "--resume", cwd=place)
    highrank("evaluate", "run", cwd=place)


def test_a_folder_corpus_that_was_moved_is_found_where_the_user_says(place, trained, monkeypatch):
    resume = ("train", "ptb-mos", "--resume", "--out", "run", "--max-epochs", 1)
    (place / "toy").rename(place / "text")
    for command in (resume, ("evaluate", "run")):
        said = fails(*command, cwd=place)
        assert (
            f"the text that run was trained on is not at {place / 'toy'}: say where it is now with --data-dir" in said
        )
        highrank(*command, "--data-dir", "text", cwd=place)
    (place / "corpora").mkdir()
    (place / "text").rename(place / "corpora" / "toy")
    monkeypatch.setenv("HIGHRANK_DATA", str(place / "corpora"))
    for command in (resume, ("evaluate", "run")):
        highrank(*command, cwd=place)
        highrank(*command, "--data-dir", "corpora", cwd=place)


def test_a_resumed_run_forgets_a_data_folder_that_is_not_here(place, trained, monkeypatch):
    """As 'evaluate' does: the run was carried from another machine."""
    info = trained / "run.json"
    stored = json.loads(info.read_text()) | {"data_dir": str(place / "gone")}
    stored["recipe"]["data"]["corpus"] = "penn"
    info.write_text(json.dumps(stored))
    monkeypatch.setenv("HIGHRANK_DATA", str(place / "corpora"))
    for command in (("train", "ptb-mos", "--resume", "--out"), ("evaluate",)):
        assert f"was not found in {place / 'corpora'}" in fails(*command, "run", cwd=place)


def test_resume_takes_the_same_settings_again(place):
    (place / "corpora").mkdir()
    (place / "toy").rename(place / "corpora" / "toy")
    own = (*settings("data.corpus=toy"), "--data-dir", "corpora", "--out", "run", "--max-epochs", 1)
    highrank("train", "ptb-mos", *own, cwd=place)
    highrank("train", "ptb-mos", *own, "--resume", cwd=place)


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "ptb-moss"], 'called "ptb-moss"; did you mean "ptb-mos"?'),
        (["train", "ptb-mos", "--set", "train.rl=1"], 'no recipe key "train.rl"'),
        (["train", "ptb-mos", "--set", "train.lr=fast"], 'train.lr must be a number, got "fast"'),
        (["train", "ptb-mos"], "the corpus penn was not found in"),
        (["train", "ptb-mos", "--data-dir", "nowhere"], "was not found in nowhere"),
        (["train", "ptb-mos", "--set", "data.corpus=toy/train.txt"], "toy/train.txt is a file: name the folder that"),
        (["train", "pydoc-mos", "--finetune"], "goes on with a run that was trained before: add --resume"),
        (["train", "ptb-mos", "--resume"], "no run of ptb-mos in runs to resume"),
        (["train", "pydoc-mos", "--device", "gpu"], 'no device "gpu"'),
        (["train", "pydoc-mos", "--device", "cuda:77"], "is not available here"),
        (["train", "pydoc-mos", "--time-budget", "soon"], '"soon" is not a time'),
        (["evaluate", "nothing"], "there is no run at nothing"),
        (["evaluate", "toy"], "toy is not a run: it holds no run.json; 'highrank runs toy' lists"),
        (["generate", "nothing"], "there is no run at nothing"),
        (["generate", "nothing", "--temperature", "1e-45"], "--temperature must be 0"),
        (["train", "pydoc-mos", "--time-budget", "inf"], '"inf" is not a time'),
        (["train", "pydoc-mos", "--set", "data.level=char"], "pydoc comes at word level only"),
        (["train", "pydoc-mos", "--set", "train.batch_size=99999999"], "too few for a batch"),
        (["train", "pydoc-mos", "--set", "train.seed=99999999999999999999"], "train.seed must be below"),
        (["train", "pydoc-mos", "--set", "train.finetune_lr=0"], "train.finetune_lr must be positive"),
        (["train", "pydoc-mos", "--out", "toy"], "toy is not empty"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_mistakes_get_one_sentence(place, arguments, sentence):
    assert sentence in fails(*arguments, cwd=place)
    assert not (place / "runs").exists()  # nothing was begun


def test_a_taken_folder_is_left_alone(place, trained):
    before = {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}
    assert "already holds a run: add --resume" in fails("train", "ptb-mos", *settings(), "--out", "run", cwd=place)
    assert before == {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ptb-mos", "--set", "train.lr=3"], "was started with"),
        (["ptb-moc"], "was started with name = ptb-mos, not ptb-moc"),
    ],
)
def test_resume_with_a_changed_recipe(place, trained, arguments, sentence):
    before = (trained / "checkpoint.json").read_bytes()
    assert sentence in fails("train", *arguments, "--out", "run", "--resume", cwd=place)
    assert (trained / "checkpoint.json").read_bytes() == before


def test_resume_with_changed_text(place, trained):
    (place / "toy" / "train.txt").write_text("something else\n" * 200)
    for command in (("train", "ptb-mos", "--resume", "--out"), ("evaluate",)):
        assert "is not the one that run was trained on" in fails(*command, "run", cwd=place)


def damage_lose(run: Path) -> None:
    (run / "checkpoint.json").unlink()


def damage_generator(run: Path) -> None:
    data = json.loads((run / "checkpoint.json").read_text())
    data["window_rng"] = {}
    (run / "checkpoint.json").write_text(json.dumps(data))


def damage_truncate(run: Path) -> None:
    file = next(run.glob("checkpoint-*.safetensors"))
    file.write_bytes(file.read_bytes()[:-100])


def damage_json(run: Path) -> None:
    (run / "checkpoint.json").write_text('{"format": 1, "tensors": ')


def damage_foreign_json(run: Path) -> None:
    (run / "checkpoint.json").write_text('{"epoch": 3}')


def damage_missing_tensors(run: Path) -> None:
    next(run.glob("checkpoint-*.safetensors")).unlink()


def damage_pickle(run: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, next(run.glob("checkpoint-*.safetensors")))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (damage_lose, "has lost its checkpoint.json"),
        (damage_generator, "is damaged"),
        (damage_truncate, "is damaged or not a safetensors file"),
        (damage_json, "is damaged or unreadable"),
        (damage_foreign_json, "is not a checkpoint that this version of highrank wrote"),
        (damage_missing_tensors, "there is no checkpoint file"),
        (damage_pickle, "is damaged or not a safetensors file"),
    ],
)
def test_damaged_and_foreign_checkpoints(place, trained, damage, sentence):
    damage(trained)
    assert sentence in fails("train", "ptb-mos", "--out", "run", "--resume", cwd=place)


def test_a_damaged_model(place, trained):
    (trained / "model.safetensors").write_bytes(b"not a model")
    assert "the trained model at run/model.safetensors is damaged" in fails("evaluate", "run", cwd=place)
    (trained / "run.json").write_text("[]")
    assert "does not describe a highrank run" in fails("evaluate", "run", cwd=place)


def test_a_full_disk_loses_nothing(place, trained):
    """The largest file this process may write is smaller than a checkpoint: as on a full disk, the write breaks off."""
    before = {p.name: p.read_bytes() for p in trained.iterdir() if p.name.startswith(("checkpoint", "model"))}
    size = max(map(len, before.values()))
    sentence = fails(
        "train", "ptb-mos", "--out", "run", "--resume", cwd=place, run=as_process,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
    )  # fmt: skip
    assert "cannot write" in sentence
    assert "free some space" in sentence
    assert before == {p.name: p.read_bytes() for p in trained.iterdir() if p.name.startswith(("checkpoint", "model"))}
    assert not list(trained.glob("*.tmp")) + list(trained.glob(".*.tmp"))
    highrank("train", "ptb-mos", "--out", "run", "--resume", cwd=place)  # and with space again, it goes on


def test_a_file_of_the_users_is_left_alone(place, trained):
    (trained / "checkpoint-best.safetensors").write_bytes(b"mine")
    (trained / ".checkpoint-3-1.safetensors.77.tmp").write_bytes(b"left by a kill")
    highrank("train", "ptb-mos", "--out", "run", "--resume", "--max-epochs", 2, cwd=place)
    assert (trained / "checkpoint-best.safetensors").read_bytes() == b"mine"
    assert not (trained / ".checkpoint-3-1.safetensors.77.tmp").exists()


def test_metrics_cut_short_do_not_stop_a_resume(place, trained):
    (trained / "metrics.jsonl").write_bytes(b"")
    highrank("train", "ptb-mos", "--out", "run", "--resume", "--max-epochs", 2, cwd=place)


def test_two_processes_do_not_train_in_one_folder(place, trained):
    import fcntl

    with open(trained / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another process is training" in fails("train", "ptb-mos", "--out", "run", "--resume", cwd=place)


def test_an_unwritable_folder(place):
    (place / "file").write_text("")  # root may write anywhere, but nobody can make a folder under a file
    assert "cannot write" in fails("train", "ptb-mos", *settings("data.corpus=toy"), "--out", "file/run", cwd=place)


def test_runs_shows_a_damaged_run_and_goes_on(place, trained):
    shutil.copytree(trained, place / "worse")
    (place / "worse" / "run.json").write_text("{")
    shutil.copytree(trained, place / "worst")
    (place / "worst" / "summary.json").write_text("[1]")
    rows = json.loads(highrank("runs", ".", "--json", cwd=place).stdout)
    assert [r["state"].split(":")[0] for r in rows] == ["can resume", "damaged", "damaged"]
    (place / "worst" / "summary.json").write_text('{"epochs": 1, "valid_ppl": "low", "test_ppl": null}')
    assert "its valid_ppl is not a number" in highrank("runs", ".", cwd=place).stdout
    assert "its valid_ppl is not a number" in fails("record", "worst", cwd=place)
    assert "There are no runs" in highrank("runs", "toy", cwd=place).stdout






def test_options_of_another_way_are_named_and_refused(place, trained):
    assert "--lr belongs to --dynamic: leave it out" in fails("evaluate", "run", "--cache", "--lr", 1, cwd=place)
    assert "--epsilon must be positive" in fails("evaluate", "run", "--dynamic", "--epsilon", -1, cwd=place)
    for name, how in (("lr", "dynamic"), ("epsilon", "dynamic"), ("lambda", "cache"), ("theta", "cache")):
        told = fails("evaluate", "run", f"--{how}", f"--{name}", "inf", cwd=place)
        assert f"--{name} must be finite, got inf" in told
    for how in ("dynamic", "cache"):
        told = fails("evaluate", "run", f"--{how}", "--batch-size", 2, cwd=place)
        assert f"--batch-size belongs to evaluation without --{how}, which reads one stream: leave it out" in told
    assert "leaves columns of fewer than 20" in fails("evaluate", "run", "--batch-size", 100_000, cwd=place)




def test_names_of_runs_are_whole_on_a_narrow_screen(place, trained, monkeypatch):
    from highrank.cli.console import out

    trained.rename(place / "a-run-with-a-name-that-is-long-enough-to-be-cut-in-eighty-columns")
    monkeypatch.setattr(out, "width", 80)
    lines = [line.split("  ")[0].strip() for line in highrank("runs", ".", cwd=place).stdout.splitlines()]
    assert "a-run-with-a-name-that-is-long-enough-to-be-cut-in-eighty-columns" in "".join(lines)


def test_runs_of_no_folder(tmp_path):
    assert "is not a folder" in fails("runs", "nope", cwd=tmp_path)
