"""The command line as a user meets it: what works, and one sentence with exit code 2 for what does not."""

import json
import shlex
import shutil

import pytest

from helpers import fails, highrank, settings
from highrank.runs.folder import Run


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
    assert "nowhere is not a run" in fails("record", "nowhere", cwd=place)
    Run(trained).model_file.unlink()
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


def test_characters(place):
    extra = "data.corpus=toy data.level=char"
    highrank("train", "ptb-mos", *settings(extra), "--out", "run", "--max-epochs", 1, cwd=place)
    assert highrank("generate", "run", "--prompt", "the c", "--length", 5, cwd=place).stdout.startswith("the c")


def test_characters_from_nothing(place):
    extra = "data.corpus=toy data.level=char"
    highrank("train", "ptb-mos", *settings(extra), "--out", "run", "--max-epochs", 1, cwd=place)
    assert highrank("generate", "run", "--length", 5, cwd=place).stdout


def test_a_folder_corpus_is_found_from_anywhere(place, trained):
    (place / "elsewhere").mkdir()
    highrank("evaluate", "../run", cwd=place / "elsewhere")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("evaluate nothing", "nothing"),
        ("evaluate toy", "toy"),
        ("generate nothing", "nothing"),
        ("generate nothing --temperature 1e-45", "--temperature"),
    ],
)
def test_a_wrong_argument_is_an_error(place, arguments, name):
    assert name in fails(*arguments.split(), cwd=place)


def test_a_damaged_model(place, trained):
    Run(trained).model_file.write_bytes(b"not a model")
    assert "run/model-1.safetensors" in fails("evaluate", "run", cwd=place)
    (trained / "run.json").write_text("[]")
    assert "run/run.json" in fails("evaluate", "run", cwd=place)


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
