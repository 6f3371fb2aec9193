"""Records: every stage told apart, runs in several pieces added up, and what only the weights can tell."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import highrank
from helpers import CPU, LEARNER, TOY, changed, epochs
from highrank.errors import UserError
from highrank.evaluation.cache import cache_evaluate
from highrank.evaluation.dynamic import dynamic_evaluate, gradient_statistics
from highrank.evaluation.perplexity import evaluate
from highrank.recipes.recipe import CacheSettings, DynamicSettings
from highrank.runs import checkpoint as checkpoints
from highrank.runs.export import export_run, import_run
from highrank.runs.folder import Run
from highrank.runs.record import _outcome, read_record, record, record_of, summarize, write_record
from highrank.runs.training import train
from highrank.training.state import TrainingState

RESULTS = Path(__file__).parents[2] / "results" / "runs"
STAGED = changed(LEARNER, nonmono=1, max_epochs=4, finetunes=2, finetune_max_epochs=3)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_records_are_read_and_written_unchanged(path, tmp_path):
    write_record(tmp_path / "copy.json", read_record(path))
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"recipe": None}, '"recipe"'),
        ({"valid_ppl": "low"}, '"valid_ppl"'),
        ({"cache": {"valid_ppl": 60.0}}, '"cache.settings"'),
        ({"perplexity": 60.0}, '"perplexity"'),
    ],
)
def test_a_malformed_record_is_an_error_that_names_the_key(change, key, tmp_path):
    data = json.loads((RESULTS / "ptb-mos-k15.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(data | change))
    with pytest.raises(UserError, match=key):
        read_record(tmp_path / "record.json")


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    from helpers import write_toy_corpus
    from highrank.data.corpus import read_corpus

    folder = tmp_path_factory.mktemp("staged")
    corpus = read_corpus(write_toy_corpus(folder / "toy"), cache=False)
    run = Run(folder / "run")
    assert train(STAGED, corpus, run, CPU) == "finished"
    summarize(run, corpus, CPU, "finished")  # as `highrank train` does, so that no test leaves it to another
    return run, corpus


def test_each_stage_is_recorded_as_it_was(staged, tmp_path):
    run, corpus = staged
    summary = summarize(run, corpus, CPU, "finished")
    stages = summary["stages"]
    assert [s["stage"] for s in stages] == [0, 1, 2]
    assert [s["epochs"] for s in stages] == [4, 7, 10]
    assert stages[0]["seconds"] < stages[1]["seconds"] < stages[2]["seconds"] <= summary["seconds"]
    assert (stages[2]["valid_ppl"], stages[2]["test_ppl"]) == (summary["valid_ppl"], summary["test_ppl"])
    assert summary["averaged_from"] == next(e["epoch"] for e in epochs(run) if e["averaged"])
    # Stage 0 came to what the same run without finetuning comes to.
    alone = Run(tmp_path / "alone")
    train(changed(STAGED, finetunes=0), corpus, alone, CPU)
    expected = summarize(alone, corpus, CPU, "finished")
    assert stages[0]["valid_ppl"] == pytest.approx(expected["valid_ppl"], rel=1e-6)
    assert stages[0]["test_ppl"] == pytest.approx(expected["test_ppl"], rel=1e-6)
    assert expected["stages"][0]["best_epoch"] == stages[0]["best_epoch"] == expected["best_epoch"]
    assert stages[0]["test_ppl"] != stages[2]["test_ppl"]


def test_pieces_add_up_across_resume_and_export(staged, tmp_path):
    whole, corpus = staged
    run, copy = Run(tmp_path / "run"), Run(tmp_path / "copy")
    train(STAGED, corpus, run, CPU, max_epochs=2)
    train(STAGED, corpus, run, CPU, resume=True, max_epochs=5)
    export_run(run, tmp_path / "export", torch.float32, 10**6, averages_only=False)
    import_run(tmp_path / "export", copy)
    made = record(copy, corpus, CPU)  # imported, not yet trained
    assert made["outcome"] == "max-epochs"
    assert made["curve"]["epoch"] == [1, 2, 3, 4, 5]
    assert train(STAGED, corpus, copy, CPU, resume=True, time_budget=600) == "finished"
    made = record(copy, corpus, CPU)
    assert made["outcome"] == "finished"
    assert made["epochs"] == 10
    assert made["curve"]["epoch"] == list(range(1, 11))
    assert made["curve"]["seconds"] == sorted(made["curve"]["seconds"])
    assert [(p["epoch"], p["time_budget"], p["outcome"]) for p in made["pieces"]] == [
        (0, None, "max-epochs"), (2, None, "max-epochs"), (5, 600, "finished"),
    ]  # fmt: skip
    assert all(p["machine"] and p["started"] and p["torch"] for p in made["pieces"])
    assert made["pieces"][2]["seconds"] < made["seconds"]
    assert [p.get("exported") for p in made["pieces"]] == [None, {"dtype": "float32", "averages_only": False}, None]
    # Cut or not, it is the same run.
    assert made["curve"]["valid_ppl"] == summarize(whole, corpus, CPU, "finished")["curve"]["valid_ppl"]


def test_a_record_holds_what_needs_the_weights(staged, tmp_path, monkeypatch):
    run, corpus = staged
    settings = DynamicSettings(lr=0.01, lamb=0.1, stats_batch_size=4)
    monkeypatch.setattr("highrank.runs.adapted.dynamic_settings", lambda corpus: settings)
    monkeypatch.setattr("highrank.evaluation.tune.FACTORS", (2.0,))
    monkeypatch.setattr("highrank.evaluation.tune.KNOBS", ("lamb",))
    said = []
    asked = {"dynamic": True, "cache": True, "tune": True, "tune_tokens": 100}
    made = record(run, corpus, CPU, **asked, on_point=lambda *point: said.append(point))
    model = highrank.load(run.folder).model
    statistics = gradient_statistics(model, corpus.splits["train"], settings)
    for split in ("valid", "test"):
        ids = corpus.splits[split]
        assert made[f"{split}_ppl"] == pytest.approx(evaluate(model, ids).perplexity)
        assert made["dynamic"][f"{split}_ppl"] == pytest.approx(
            dynamic_evaluate(model, ids, statistics, settings).perplexity
        )
        for part in ("cache", "cache_tuned"):
            how = CacheSettings(**made[part]["settings"])
            assert made[part][f"{split}_ppl"] == pytest.approx(cache_evaluate(model, ids, how).perplexity)
    assert made["dynamic"]["settings"]["lr"] == 0.01
    assert len(said) == len(made["dynamic_tuned"]["tuning"]["tried"]) > 1
    for how in ("dynamic", "cache"):
        assert made[f"{how}_tuned"]["settings"] == made[f"{how}_tuned"]["tuning"]["best"]
        assert made[f"{how}_tuned"]["tuning"]["tokens"] == 100
        assert made[f"{how}_tuned"]["valid_ppl"] != made[how]["valid_ppl"]
        assert made[f"{how}_tuned"]["tuning"]["split"] == "valid"
    valid = corpus.splits["valid"][:101]  # the first hundred predictions, of validation alone
    best = DynamicSettings(**made["dynamic_tuned"]["settings"])
    ppl = dynamic_evaluate(model, valid, statistics, best).perplexity
    assert made["dynamic_tuned"]["tuning"]["tried"][0]["perplexity"] == pytest.approx(ppl)
    ppl = cache_evaluate(model, valid, CacheSettings(**made["cache_tuned"]["settings"])).perplexity
    assert made["cache_tuned"]["tuning"]["tried"][0]["perplexity"] == pytest.approx(ppl)
    assert made["dynamic"]["seconds"] > 0
    assert made["dynamic"]["provenance"].keys() <= made["provenance"].keys()  # adapting may happen elsewhere
    assert len(made["cache_tuned"]["tuning"]["tried"]) == 20  # of hundreds: the best
    json.dumps(made)
    assert made.keys() >= {"recipe", "epochs", "seconds", "valid_ppl", "test_ppl", "seed", "provenance"}


@pytest.fixture
def adapting(staged, monkeypatch):
    """`record` of a small search, which it can be cut off from: at the n-th evaluation of a split, from 0."""
    run, corpus = staged
    settings = DynamicSettings(lr=0.01, lamb=0.1, stats_batch_size=4)
    monkeypatch.setattr("highrank.runs.adapted.dynamic_settings", lambda corpus: settings)
    monkeypatch.setattr("highrank.evaluation.tune.FACTORS", (2.0,))
    monkeypatch.setattr("highrank.evaluation.tune.KNOBS", ("lamb",))
    calls = []

    def make(known=None, cut=None, **asked):
        kept = []  # as JSON keeps it
        calls.clear()

        def watch(what):
            calls.append(what)
            if cut is not None and len([call for call in calls if call.startswith(("valid,", "test,"))]) > cut:
                raise KeyboardInterrupt
            return lambda done, total: None

        try:
            record(run, corpus, CPU, known=known, keep=lambda now: kept.append(json.dumps(now)), watch=watch, **asked)
        except KeyboardInterrupt:
            assert cut is not None
        return json.loads(kept[-1])

    make.calls = calls
    return make


def timeless(part):
    return part | {"seconds": 0, "provenance": {**part["provenance"], "started": ""}}


@pytest.mark.parametrize("how", ["dynamic", "cache"])
@pytest.mark.parametrize("tune", [False, True])
def test_who_is_cut_off_keeps_what_is_there_and_goes_on_from_it(adapting, how, tune):
    asked = {how: True} | ({"tune": True, "tune_tokens": 60} if tune else {})
    name, first = (f"{how}_tuned", 2) if tune else (how, 0)
    whole = adapting(**asked)
    search = [call for call in adapting.calls if "tuning" in call]
    kept = adapting(**asked, cut=first + 1)  # in the test
    assert kept[name].keys() == whole[name].keys() - {"test_ppl"}
    assert kept[name]["valid_ppl"] == whole[name]["valid_ppl"]
    kept[name]["seconds"], kept[name]["provenance"]["started"] = 1000.0, "before"  # to be known again
    again = adapting(known=kept, **asked)
    assert [call for call in adapting.calls if "gradient" not in call] == [f"test, {name.replace('_', ', ')}"]
    assert timeless(again[name]) == timeless(whole[name])
    assert list(again[name]) == ["settings", "valid_ppl", "test_ppl", "seconds", "provenance", "tuning"][: 5 + tune]
    assert again[name]["seconds"] > kept[name]["seconds"]
    assert again[name]["provenance"] == kept[name]["provenance"]
    if tune:
        kept = adapting(**asked, cut=first)  # right after the search
        assert kept[name]["tuning"] == whole[name]["tuning"]
        assert not {"valid_ppl", "test_ppl"} & kept[name].keys()
        assert timeless(adapting(known=kept, **asked)[name]) == timeless(whole[name])
        assert not [call for call in adapting.calls if "tuning" in call]
        adapting(known=kept, **asked | {"tune_tokens": 61})
        assert [call for call in adapting.calls if "tuning" in call] == search  # of more text: found anew


def test_who_is_cut_off_loses_no_other_part(adapting):
    kept = adapting(dynamic=True, cache=True, cut=2)
    assert kept["dynamic"].keys() >= {"valid_ppl", "test_ppl"}
    assert "cache" not in kept
    kept["dynamic"]["test_ppl"] = 2.0  # to be known again
    again = adapting(known=kept, dynamic=True, cut=1)
    assert again["dynamic"]["test_ppl"] == 2.0  # made anew, but a whole part is not given up for half of one
    assert adapting(known=kept, dynamic=True)["dynamic"]["test_ppl"] > 2.0
    tuned = {"cache": True, "tune": True, "tune_tokens": 60}
    whole = adapting(**tuned)
    assert adapting(known=whole, **tuned, cut=0) == whole  # right after the search


def test_who_is_cut_off_waits_for_no_whole_part_again(adapting):
    asked = {"dynamic": True, "cache": True, "tune": True, "tune_tokens": 60}
    whole = adapting(**asked)
    calls = list(adapting.calls)
    kept = adapting(**asked, cut=7)  # in the very last test
    again = adapting(known=kept, **asked)
    assert [call for call in adapting.calls if "gradient" not in call] == ["test, cache, tuned"]
    assert {name: timeless(again[name]) for name in ("dynamic", "dynamic_tuned", "cache", "cache_tuned")} == {
        name: timeless(whole[name]) for name in ("dynamic", "dynamic_tuned", "cache", "cache_tuned")
    }
    adapting(known=kept, **asked | {"tune_tokens": 61})
    assert len([call for call in adapting.calls if "tuning" in call]) == 2  # of more text: found anew
    kept["dynamic_tuned"]["provenance"]["commit"] = "another"
    adapting(known=kept, **asked)
    assert [call for call in adapting.calls if "tuning" in call] == ["tuning dynamic evaluation"]
    adapting(known=again, **asked)  # nothing was cut off: what is tuned is made anew
    assert adapting.calls == [call for call in calls if call not in PUBLISHED]


PUBLISHED = ("valid, dynamic", "test, dynamic", "valid, cache", "test, cache")


@pytest.mark.parametrize(
    "change", [{"settings": {"lr": 1.0}}, {"provenance": {"commit": "another"}}, {"provenance": {}}]
)
def test_what_was_cut_off_elsewhere_is_made_anew(adapting, change):
    kept = adapting(dynamic=True, cut=1)
    kept["dynamic"] |= {key: value and kept["dynamic"][key] | value for key, value in change.items()}
    kept["dynamic"]["valid_ppl"] = 2.0
    assert adapting(known=kept, dynamic=True)["dynamic"]["valid_ppl"] > 2.0


@pytest.mark.parametrize("how", ["dynamic", "cache"])
def test_who_tunes_does_not_wait_for_what_is_known(staged, monkeypatch, how):
    run, corpus = staged
    usual = {
        "dynamic": DynamicSettings(lr=0.01, lamb=0.1, stats_batch_size=4),
        "cache": CacheSettings(window=20, theta=1.0, lamb=0.1),
    }[how]
    monkeypatch.setattr(f"highrank.runs.adapted.{how}_settings", lambda corpus: usual)
    monkeypatch.setattr("highrank.evaluation.tune.FACTORS", (2.0,))
    monkeypatch.setattr("highrank.evaluation.tune.KNOBS", ("lamb",))
    asked = {how: True, "tune": True, "tune_tokens": 60}
    known = record(run, corpus, CPU, **{how: True})
    known[how]["test_ppl"] = 2.0  # to be known again
    kept = []
    made = record(run, corpus, CPU, **asked, known=known, keep=kept.append)
    assert made[how]["test_ppl"] == 2.0
    assert made[f"{how}_tuned"]["test_ppl"] > 2.0
    assert [how in one and f"{how}_tuned" in one for one in kept] == [False, True, True, True]
    assert record(run, corpus, CPU, **{how: True}, known=known)[how]["test_ppl"] > 2.0  # asked for alone: made anew
    known[how]["settings"]["lamb"] = 0.3  # not the published ones
    assert record(run, corpus, CPU, **asked, known=known)[how]["test_ppl"] > 2.0


def test_a_record_of_the_same_state_keeps_what_it_has(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(TOY, toy_corpus, run, CPU, max_epochs=1)
    known = {**record(run, toy_corpus, CPU), "dynamic": {"test_ppl": 1.0}, "test_ppl": 2.0}
    made = record(run, toy_corpus, CPU, cache=True, known=known)
    assert made.keys() == {*known, "cache"}
    assert {key: made[key] for key in known} == known
    again = record(run, toy_corpus, CPU, cache=True, known={**known, "cache": {"test_ppl": 3.0}})
    assert again["cache"]["test_ppl"] == made["cache"]["test_ppl"]  # asked for, so made anew
    old = {key: value for key, value in known.items() if key != "updates"}  # from before they were counted
    assert record(run, toy_corpus, CPU, known=old) == old
    # Not of another state.
    train(TOY, toy_corpus, run, CPU, resume=True, max_epochs=2)
    for earlier in (known, old):
        made = record(run, toy_corpus, CPU, known=earlier)
        assert made["epochs"] == 2
        assert made["test_ppl"] != 2.0
        assert "dynamic" not in made


def test_whose_record(toy_corpus, tmp_path):
    run, copy, other = (Run(tmp_path / name) for name in ("run", "copy", "other"))
    train(TOY, toy_corpus, run, CPU, max_epochs=1)
    export_run(run, tmp_path / "export", torch.float16, 10**6, averages_only=True)
    import_run(tmp_path / "export", copy)
    train(TOY, toy_corpus, other, CPU, max_epochs=1)
    info = json.loads((other.folder / "run.json").read_text())
    info["provenance"]["started"] = "2018-04-30T00:00:00+00:00"
    (other.folder / "run.json").write_text(json.dumps(info))
    made = record(run, toy_corpus, CPU)
    assert [record_of(one, made) for one in (run, copy, other)] == [True, True, False]
    assert not record_of(run, [])
    assert not record_of(run, {})


def test_a_summary_of_an_earlier_state_is_not_believed(tmp_path, toy_corpus):
    run = Run(tmp_path / "run")
    train(TOY, toy_corpus, run, CPU, max_epochs=1)
    first = summarize(run, toy_corpus, CPU, "max-epochs")
    assert record(run, toy_corpus, CPU) == first
    train(TOY, toy_corpus, run, CPU, resume=True, max_epochs=3)
    assert record(run, toy_corpus, CPU)["epochs"] == 3
    asked = iter([False, True])  # in the middle of an epoch
    assert train(TOY, toy_corpus, run, CPU, resume=True, should_stop=lambda: next(asked)) == "interrupted"
    made = record(run, toy_corpus, CPU)
    assert (made["epochs"], made["updates"]) == (3, checkpoints.read(run.folder).state.step)


def test_a_record_is_of_one_stream_and_of_what_the_checkpoint_knows(toy_corpus, tmp_path):
    run = Run(tmp_path / "run")
    train(TOY, toy_corpus, run, CPU, max_epochs=2)
    columns = summarize(run, toy_corpus, CPU, "max-epochs", batch_size=4)
    model = highrank.load(run.folder).model
    one, four = (evaluate(model, toy_corpus.splits["valid"], batch_size).perplexity for batch_size in (1, 4))
    assert columns["valid_ppl"] == four != one
    told = epochs(run)
    with run.metrics_file.open("a") as file:  # as a run that was killed leaves it
        file.write(json.dumps({**told[-1], "epoch": 3}) + "\n")
    saved = checkpoints.load(run.folder)
    saved.state.skipped, saved.state.best_epoch = 3, 1
    checkpoints.save(run.folder, saved, [], run.metrics_file.stat().st_size)
    made = record(run, toy_corpus, CPU)
    assert (made["skipped"], made["best_epoch"]) == (3, 1)
    assert made["eval_batch_size"] == 1
    assert made["test_ppl"] == pytest.approx(evaluate(model, toy_corpus.splits["test"]).perplexity)
    assert made["curve"]["epoch"] == [1, 2]
    for key in ("seconds", "train_ppl", "valid_ppl"):
        assert made["curve"][key] == [round(line[key], 4) for line in told]


def test_the_outcome_is_that_of_the_last_piece():
    pieces = [SimpleNamespace(outcome="max-epochs"), SimpleNamespace(outcome="time-budget")]

    def checkpoint(pieces, finished=False):
        return SimpleNamespace(pieces=pieces, state=TrainingState(finished=finished))

    assert _outcome(checkpoint(pieces)) == "time-budget"
    assert _outcome(checkpoint([*pieces, SimpleNamespace(outcome=None)])) == _outcome(checkpoint([])) == "cut off"
    assert _outcome(checkpoint(pieces, finished=True)) == "finished"
