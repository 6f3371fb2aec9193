"""Runs to explore: random weights on toy corpora, made once for all tests of this folder."""

import dataclasses

import pytest
import torch

from helpers import CPU, TOY, changed, save_weights, write_toy_corpus
from highrank.data.corpus import read_corpus
from highrank.data.own_text import make_corpus
from highrank.explore.explorer import Explorer
from highrank.explore.model import open_model
from highrank.models import build_model
from highrank.runs.folder import Run


def make_run(folder, recipe, corpus_folder, level="word"):
    corpus = read_corpus(corpus_folder, level)
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, corpus=str(corpus_folder), level=level))
    run = Run(folder)
    run.create(recipe, corpus, CPU, None)
    torch.manual_seed(3)
    model = build_model(recipe.model, corpus.vocab_size)
    weights = {name: 4 * tensor.detach() for name, tensor in model.named_parameters()}  # far from uniform predictions
    save_weights(run, weights)
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Folders of runs on words (mos, doc, softmax, unk), characters and BPE pieces; "unk" has <unk> and markup."""
    place = tmp_path_factory.mktemp("explore")
    toy = write_toy_corpus(place / "toy")
    unk = write_toy_corpus(place / "unk")
    (unk / "train.txt").write_text((toy / "train.txt").read_text() + "<unk> <script>alert(1)</script> <b>bold</b>\n")
    make_corpus([toy / "train.txt"], place / "bpe", level="bpe", max_vocab=300)
    return {
        "bpe": make_run(place / "bpe-mos", TOY, place / "bpe", "bpe"),
        "mos": make_run(place / "mos", TOY, toy),
        "doc": make_run(place / "doc", changed(model={"n_components": 4, "lower_components": (1,)}), toy),
        "softmax": make_run(place / "softmax", changed(model={"head": "softmax", "hidden_sizes": (10, 6)}), toy),
        "char": make_run(place / "char", TOY, toy, "char"),
        "unk": make_run(place / "unk-mos", TOY, unk),
    }


@pytest.fixture
def explorer(runs):
    return Explorer(open_model(runs["mos"], CPU))
