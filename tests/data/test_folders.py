"""Where corpora and caches are looked for."""

import pytest

from highrank.data.folders import cache_folder, find_folder
from highrank.errors import UserError


def corpus(folder):
    folder.mkdir(exist_ok=True)
    (folder / "train.txt").write_text("a\n")
    return folder


def test_a_missing_corpus_names_the_folder_and_the_variable(tmp_path):
    with pytest.raises(UserError, match=f"{cache_folder()}.*HIGHRANK_DATA"):
        find_folder("penn", None)


def test_a_missing_corpus_that_can_be_downloaded_names_the_command(tmp_path):
    with pytest.raises(UserError, match="highrank data get wikitext-2"):
        find_folder("wikitext-2", tmp_path)


def test_a_corpus_is_found_through_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HIGHRANK_DATA", str(corpus(tmp_path / "penn").parent))
    assert find_folder("penn", None) == tmp_path / "penn"


def test_a_given_folder_is_searched_instead_of_the_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HIGHRANK_DATA", str(corpus(tmp_path / "penn").parent))
    other = corpus(tmp_path / "other")
    assert find_folder("penn", other) == other


def test_the_cache_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here" / "highrank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "highrank"


def test_a_folder_of_the_corpuss_name_comes_before_the_folder_itself(tmp_path):
    corpus(tmp_path)
    corpus(tmp_path / "penn")
    assert find_folder("penn", tmp_path) == tmp_path / "penn"
