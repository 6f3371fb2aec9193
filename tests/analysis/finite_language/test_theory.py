"""`highrank theory` as a user meets it, small; and checks that fail when what they check is broken."""

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import highrank.analysis.finite_language as package
from helpers import fails, highrank
from highrank.analysis.finite_language import Setup, checks
from highrank.analysis.finite_language.bounds import ranks
from highrank.analysis.finite_language.laboratory import random_model
from highrank.analysis.finite_language.sweep import Effort, sweep
from highrank.cli.theory import parse_dims
from highrank.data.synthetic import FiniteLanguage, gaussian_language

SMALL = ("--contexts", 10, "--words", 8, "--rank", 6, "--components", 4)


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch):
    monkeypatch.setattr(package, "QUICK", Effort(1, {"softmax": 40, "moc": 40, "mos": 40}))


@pytest.mark.parametrize("extra", [(), ("--bias", "--unigram")], ids=" ".join)
def test_theory(tmp_path, extra):
    done = highrank("theory", *SMALL, *extra, "--quick", "--out", "lab", cwd=tmp_path)
    assert "9 of 9 checks hold" in done.stdout
    report = json.loads((tmp_path / "lab" / "report.json").read_text())
    bias, unigram = "--bias" in extra, "--unigram" in extra
    assert report["ranks"]["a"] == 6
    assert report["ranks"]["enough_for_softmax"] == 5 - (bias and unigram)
    assert [c["holds"] for c in report["checks"]] == [True] * 9
    assert {p["found"]["embed_dim"] for p in report["points"]} == {1, 2, 3, 4, 5, 6}
    for point in report["points"]:
        found = point["found"]
        if point["head"] != "mos":
            assert point["lower_bound"] <= found["kl"]
            bound = found["embed_dim"] + 1 + bias
            assert found["rank"] <= bound
            assert found["rank_bound"] == (bound if bound < 8 else None)  # eight words allow no more
            assert (point["lower_bound"] == 0) == (found["embed_dim"] >= report["ranks"]["enough_for_softmax"])
        known = [found["kl"]] + ([point["constructed"]["kl"]] if point["constructed"] else [])
        assert point["kl_attainable_at_most"] == min(known)
    assert any(point["kl_attainable_at_most"] < point["found"]["kl"] for point in report["points"])
    table = (tmp_path / "lab" / "table.md").read_text().splitlines()
    assert len(table) == 2 + 6 * 3
    for name in ("kl", "rank"):
        assert (tmp_path / "lab" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (tmp_path / "lab" / f"{name}.svg").read_text()[:1000]
        assert f"lab/{name}.svg" in done.stdout


def test_one_component_and_few_contexts(tmp_path):
    """With K = 1 a MoS is a softmax, and the checks say so instead of failing."""
    done = highrank(
        "theory", "--contexts", 3, "--words", 8, "--rank", 3, "--components", 1, "--quick", "--out", ".", cwd=tmp_path
    )
    assert "K = 1: a softmax" in done.stdout
    assert "FAILS" not in done.stdout
    assert "for a MoS-1, D >= 2 is enough" in done.stdout  # as for the softmax that it is
    assert re.search(r"\d of 9 checks hold, \d cannot be shown at these sizes", done.stdout)
    highrank("theory", "--contexts", 2, "--words", 2, "--dims", "1", "--quick", "--out", ".", cwd=tmp_path)


def test_the_time_left_is_in_proportion(monkeypatch):
    now, out = [0.0], Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(package.time, "perf_counter", lambda: now[0])

    def a_quarter(*arguments):
        now[0] = 12.0
        arguments[-1](3, "mos", 0.25)
        return []

    monkeypatch.setattr(package, "sweep", a_quarter)
    package._watched_sweep(Setup(), None, out)
    assert out.file.getvalue().rstrip() == "   D = 3, MoS: 25% done, about 36 s left"


def test_a_failing_check_ends_with_code_1(tmp_path, monkeypatch):
    broken = checks.Check("Property 9", "", "", "", "", False)
    monkeypatch.setattr(package, "algebra", lambda *_: [broken])
    done = highrank("theory", *SMALL, "--dims", "1", "--quick", "--out", ".", cwd=tmp_path, check=1)
    assert "FAILS Property 9" in done.stdout
    assert "1 of 4 checks failed" in done.stdout


def test_checks_notice_wrong_numbers():
    """Told wrong ranks, or given fits that break the bound, the checks fail."""
    setup = Setup(contexts=10, words=8, rank=5, components=3)
    language, generator = setup.language(), torch.Generator().manual_seed(0)
    right = ranks(language)
    wrong = dataclasses.replace(right, lowest=right.lowest - 1, lowest_with_bias=right.lowest - 1)
    assert checks.property_2(language, wrong, generator).holds is False
    assert checks.proposition(language, wrong, False).holds is False
    assert checks.lemma(language, wrong).holds is False
    high = dataclasses.replace(right, a=right.a + 2, lowest=right.lowest + 1, lowest_with_bias=right.lowest + 1)
    assert checks.proposition(language, high, False).holds is False
    assert checks.lemma(language, high).holds is False
    assert checks.corollary(language, high, False).holds is False
    unnormalised = FiniteLanguage(language.log_p + 1)
    assert checks.property_1(unnormalised, generator).holds is False

    points = sweep(language, [1, 2], 3, False, 1, Effort(1, {"softmax": 40, "moc": 40, "mos": 40}), lambda *_: None)
    assert all(check.holds for check in checks.fitted(language, right, points, False))
    mos = points[2]
    liar = dataclasses.replace(points[0], fit=mos.fit, floor=1.0)
    below, rank, _ = checks.fitted(language, right, [liar, *points[1:]], False)
    assert (below.holds, rank.holds) == (False, False)
    points[0] = dataclasses.replace(points[0], fit=dataclasses.replace(points[0].fit, rank=1 + 1 + 1))  # one too many
    assert checks.fitted(language, right, points, False)[1].holds is False
    as_low = [p if p.kind != "mos" else dataclasses.replace(p, fit=dataclasses.replace(p.fit, rank=1)) for p in points]
    assert checks.fitted(language, right, as_low, False)[2].holds is False


def test_checks_notice_wrong_models(monkeypatch):
    """Each with the one thing broken that it is about."""
    setup = Setup(contexts=10, words=8, rank=6, components=4)
    language, generator = setup.language(), torch.Generator().manual_seed(0)
    right = ranks(language)
    assert checks.mos_is_free(language, right, 4, False).holds is True
    points = sweep(language, [1], 4, False, 1, Effort(1, {"softmax": 20, "moc": 20, "mos": 20}), lambda *_: None)
    assert checks.fitted(language, right, points, False)[2].found.endswith("no KL below that bound")
    better = dataclasses.replace(points[2], fit=dataclasses.replace(points[2].fit, kl=0.0))
    assert checks.fitted(language, right, [*points[:2], better], False)[2].found.endswith("can reach at D = 1")
    other = random_model("mos", (10, 8), 4, 3, False, generator)
    monkeypatch.setattr(checks, "mos_by_groups", lambda *_: other)
    assert checks.mos_is_free(language, right, 4, False).holds is False
    monkeypatch.setattr(checks, "_mixed_logits", lambda moc: other.log_prob())
    assert checks.fitted(language, right, points, False)[1].holds is False
    monkeypatch.setattr(checks, "centred", torch.zeros_like)  # moves that move nothing
    assert checks.property_1(language, generator).holds is False


def test_few_contexts_span_everything():
    """No shift leaves the column space then, so that no member of F(A) has a higher rank."""
    language = gaussian_language(5, 40, 1.5, torch.Generator().manual_seed(0))
    assert checks.property_2(language, ranks(language), torch.Generator().manual_seed(0)).holds is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dims", "0"], "every D must be at least 1, got 0"),
        (["--dims", "-3"], "every D must be at least 1, got -3"),
        (["--dims", "two"], "is not a list of sizes"),
        (["--dims", "8-4"], "is not a list of sizes"),
        (["--dims", "1,,2"], "is not a list of sizes"),
        (["--dims", "999999"], "D at most 64"),
        (["--rank", "33"], "--rank must lie between 2 and the smaller of contexts and words, 32, got 33"),
        (["--rank", "1"], "every context would say the same"),
        (["--rank", "2", "--unigram"], "--rank must lie between 3"),
        (["--components", "0"], "--components must be at least 1, got 0"),
        (["--contexts", "1"], "at least 2 contexts and 2 words"),
        (["--words", "-5"], "at least 2 contexts and 2 words"),
        (["--contexts", "100000", "--words", "100000"], "the laboratory is for small languages"),
        (["--seed", "-1"], "--seed must lie between"),
        (["--out", "file/lab"], "cannot write to file/lab"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_mistakes_get_one_sentence(tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("")
    assert sentence in fails("theory", *arguments, cwd=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]  # nothing was begun


def test_the_document_names_options_that_exist(tmp_path):
    document = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    shown = set(re.findall(r"(?<!-)--[a-z]+", document))
    assert len(shown) >= 8
    help_text = highrank("theory", "--help", cwd=tmp_path).stdout
    assert not [option for option in shown if option not in help_text]
    for figure in re.findall(r"\]\((figures/[^)]+)\)", document):
        assert (Path(__file__).parents[2] / "docs" / figure).exists()


def test_dims():
    assert parse_dims("") == ()
    assert parse_dims("1, 2,5-7") == (1, 2, 5, 6, 7)


@pytest.mark.parametrize("rank", [2, 3, 5, 16, 64])
def test_the_default_sweep_covers_the_rank(rank):
    for quick in (False, True):
        swept = Setup(contexts=64, words=64, rank=rank, quick=quick).swept
        assert swept == sorted(set(swept))
        assert {1, max(1, rank - 2), rank - 1, rank} <= set(swept)
        assert len(swept) <= 15
    assert Setup().true_rank == 16
    assert Setup(contexts=64, words=32, dims=(40,)).swept == [40]  # beyond the words, and not beyond the contexts
