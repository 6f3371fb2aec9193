"""Runs of DOC, whose components belong to two layers, work with the commands."""

import json

import pytest

from helpers import highrank, settings


@pytest.fixture
def doc(place):
    """Train DOC for one epoch on the toy corpus, and return the folder of its run."""
    extra = settings("data.corpus=toy model.lower_components=1")
    highrank("train", "ptb-doc", *extra, "--out", "run", "--max-epochs", 1, cwd=place)
    return place


def perplexity(place, *arguments):
    return json.loads(highrank("evaluate", *arguments, "--json", cwd=place).stdout)["perplexity"]


def test_export_import_and_evaluation(doc):
    highrank("export", "run", "--out", "exported", cwd=doc)
    highrank("import", "exported", "--out", "copy", cwd=doc)
    for option in ((), ("--dynamic",), ("--cache",)):
        here = perplexity(doc, "run", *option)
        assert here == pytest.approx(perplexity(doc, "copy", *option), rel=1e-3)  # the export is in half precision


def test_generate_and_analyze(doc):
    assert highrank("generate", "run", "--prompt", "the cat", "--length", 5, cwd=doc).stdout.startswith("the cat")
    analysis = highrank("analyze", "run", cwd=doc).stdout
    assert "K=3" in analysis
