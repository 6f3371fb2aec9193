"""`highrank data`: the list of corpora, verification, preparation and the cache."""

import json
from pathlib import Path

import pytest

from helpers import fails, highrank
from highrank.data.corpus import cache_folder


def test_list_gives_counts_and_the_folder_of_each_copy(tmp_path, corpora):
    rows = {row["name"]: row for row in json.loads(highrank("data", "list", "--json", cwd=tmp_path).stdout)}
    assert rows["penn"]["tokens"]["train"] == 929_589
    assert rows["penn"]["folder"] is None
    rows = json.loads(highrank("data", "list", "--json", "--data-dir", corpora, cwd=tmp_path).stdout)
    assert rows[0]["folder"] == str(corpora / "penn")
    assert str(corpora / "penn") in highrank("data", "list", "--data-dir", corpora, cwd=tmp_path).stdout


@pytest.mark.parametrize("name", ["penn", "wikitext-2"])
def test_verify_accepts_the_usual_copies(name, tmp_path, corpora):
    assert highrank("data", "verify", name, "--data-dir", corpora, cwd=tmp_path).stdout.count("checksum correct") == 3


def test_verify_says_how_much_of_text8_there_is(tmp_path):
    (tmp_path / "text8").write_text("a word " * 100)
    done = highrank("data", "verify", "text8", "--data-dir", tmp_path, cwd=tmp_path)
    assert "prefix of 700 characters" in done.stdout
    assert "checksum correct" not in done.stdout
    highrank("data", "prepare", "text8", "--data-dir", tmp_path, cwd=tmp_path)
    rows = json.loads(highrank("data", "list", "--json", "--data-dir", tmp_path, cwd=tmp_path).stdout)
    assert [row["folder"] for row in rows if row["name"] == "text8"] == [str(tmp_path)]


def test_verify_reports_changed_bytes(tmp_path, corpora):
    copy = tmp_path / "penn"
    copy.mkdir()
    for split in ("train", "valid", "test"):
        text = (corpora / "penn" / f"{split}.txt").read_text()
        (copy / f"{split}.txt").write_text(text.replace("\n", " \n") if split == "valid" else text)
    assert highrank("data", "verify", "penn", "--data-dir", copy, cwd=tmp_path).stdout.count("checksum correct") == 2


def test_verify_names_the_file_with_wrong_counts(place):
    assert "train.txt" in fails("data", "verify", "penn", "--data-dir", "toy", cwd=place)


def test_an_unknown_corpus_is_an_error_that_suggests_the_nearest(tmp_path):
    assert '"penn"' in fails("data", "verify", "pen", cwd=tmp_path)


def test_pydoc_needs_no_copy(tmp_path):
    for command in ("verify", "prepare"):
        assert "vocabulary" in highrank("data", command, "pydoc", cwd=tmp_path).stdout


def test_prepare_writes_the_ids_to_the_cache(tmp_path, corpora):
    done = highrank("data", "prepare", "penn", "--data-dir", corpora, cwd=tmp_path)
    file = Path(done.stdout.split()[-1])
    assert file.is_relative_to(cache_folder())
    assert file.exists()


def test_cache_counts_and_clears_only_its_own_files(tmp_path):
    cache = cache_folder()
    own = [cache / "ids" / "ab.safetensors", cache / "dynamic" / "cd.safetensors", cache / "readings" / "ef.json"]
    own.append(cache / "dynamic" / ".cd.safetensors.12.tmp")  # of a process that was killed
    corpus = cache / "data" / "toy" / "train.txt"
    for file in (*own, corpus):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    rows = json.loads(highrank("data", "cache", "--json", cwd=tmp_path).stdout)
    usage = {Path(row["folder"]).name: (row["files"], row["bytes"]) for row in rows}
    assert usage == {"ids": (1, 5), "dynamic": (2, 10), "readings": (1, 5)}
    highrank("data", "cache", "--clear", cwd=tmp_path)
    assert [path for path in cache.rglob("*") if path.is_file()] == [corpus]
