import json
import shutil
from pathlib import Path

import pytest
import torch

from helpers import CPU, highrank, settings, write_toy_corpus
from highrank.data.corpus import read_corpus
from highrank.errors import UserError
from highrank.runs import training
from highrank.runs.analysis import analyze_runs, default_tokens, read_analysis, write_analysis
from highrank.runs.folder import Run

RESULTS = Path(__file__).parents[2] / "results" / "analysis"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with three small runs on one toy corpus."""
    folder = tmp_path_factory.mktemp("analysis")
    write_toy_corpus(folder / "toy")
    for head in ("softmax", "moc", "mos"):
        train(folder, head, f"model.head={head}")
    return folder


def train(folder, name, extra=""):
    changes = settings(f"data.corpus=toy model.hidden_sizes=10,6 {extra}")
    highrank("train", "ptb-mos", *changes, "--out", name, "--max-epochs", 1, cwd=folder)


@pytest.fixture(scope="module")
def record(place):
    return analyze_runs([place / head for head in ("softmax", "moc", "mos")], contexts=50, data_dir=place)


def test_a_record_describes_the_text_and_the_runs(place, record):
    assert (record.corpus, record.split, record.vocabulary) == ("toy", "test", 15)
    assert record.corpus_fingerprint
    assert record.provenance["torch"]
    mos = record.models[2]
    assert (mos.name, mos.run, mos.recipe, mos.n_components) == ("mos", str(place / "mos"), "ptb-mos", 3)
    assert mos.epochs == 1


def test_runs_without_weights_are_named_before_the_analysis(place):
    shutil.copytree(place / "mos", place / "untrained")
    (place / "untrained" / "checkpoint.json").unlink()
    stages = []
    with pytest.raises(UserError, match="untrained"):
        analyze_runs([place / "softmax", place / "untrained"], on_stage=lambda *stage: stages.append(stage))
    assert not stages


@pytest.mark.parametrize("tokens", [-5, 0, 1])
def test_too_few_tokens_are_an_error(place, tokens):
    with pytest.raises(UserError, match="at least 2 tokens"):
        analyze_runs(place / "mos", tokens=tokens)


def test_only_mos_exceeds_rank_d_plus_2(record):
    softmax, moc, mos = record.models
    assert softmax.rank_bound == moc.rank_bound == 8
    assert softmax.rank <= 8
    assert moc.rank <= 8 < mos.rank <= mos.rank_bound == 15


def test_the_bound_of_an_untied_softmax_comes_from_its_output_matrix(place):
    train(place, "untied", "model.head=softmax model.tied=false model.embed_dim=3")
    (model,) = analyze_runs(place / "untied").models
    assert model.embed_dim == 6  # the last hidden size
    assert model.rank == model.rank_bound == 8


def test_perplexity_is_that_of_the_run(place, record):
    summary = json.loads((place / "mos" / "summary.json").read_text())
    mos = record.models[2]
    assert mos.perplexity == pytest.approx(summary["test_ppl"], rel=1e-4)  # computed in float64
    assert (mos.valid_ppl, mos.test_ppl) == (summary["valid_ppl"], summary["test_ppl"])


def test_a_summary_of_earlier_weights_is_not_quoted(place, tmp_path):
    run = Run(tmp_path / "mos")
    shutil.copytree(place / "mos", run.folder)
    training.train_run(run.recipe(), read_corpus(place / "toy"), run, CPU, resume=True, max_epochs=2)
    (model,) = analyze_runs(run.folder, tokens=12).models
    assert (model.epochs, model.valid_ppl, model.test_ppl) == (2, None, None)


def test_a_part_of_a_split(place):
    record = analyze_runs([place / "mos"], "valid", tokens=12, data_dir=place)
    assert (record.split, record.tokens, record.models[0].rank) == ("valid", 12, 12)


@pytest.mark.parametrize(
    ("device", "rows", "tokens"),
    [("cpu", None, 20_000), ("cpu", 4185, 4185), ("cpu", 30_000, 20_000), ("cuda", None, None), ("cuda", 4185, 4185)],
)
def test_tokens_read_by_default(device, rows, tokens):
    assert default_tokens(torch.device(device), rows) == tokens


def test_runs_on_different_texts_raise(place, tmp_path):
    write_toy_corpus(tmp_path / "toy", lines=60)
    train(tmp_path, "other")
    with pytest.raises(UserError, match="other"):
        analyze_runs([place / "mos", tmp_path / "other"])


def test_no_run_raises():
    with pytest.raises(UserError):
        analyze_runs([])


def test_a_record_survives_writing_and_reading(record, tmp_path):
    write_analysis(tmp_path / "analysis.json", record)
    assert read_analysis(tmp_path / "analysis.json") == record


def test_a_wrong_record_raises_with_its_file_and_key(record, tmp_path):
    write_analysis(tmp_path / "analysis.json", record)
    data = json.loads((tmp_path / "analysis.json").read_text())
    del data["models"][1]["rank"]
    (tmp_path / "analysis.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"analysis\.json.*models\[1\]\.rank"):
        read_analysis(tmp_path / "analysis.json")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_records_are_read_unchanged(path):
    record = read_analysis(path)
    for model, stored in zip(record.models, json.loads(path.read_text())["models"], strict=True):
        assert (model.rank, model.effective_rank, model.kld.mean) == (
            stored["rank"],
            stored["effective_rank"],
            stored["kld"]["mean"],
        )
