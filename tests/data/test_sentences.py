"""Indexed texts and the permuted columns over their sentences."""

from pathlib import Path

import numpy as np
import pytest
import torch

from highrank.data.indexed import HEADER, IndexedText, open_text
from highrank.data.sentences import SentenceColumns
from highrank.errors import UserError

SIZES = [1 + i * i % 7 for i in range(200)]  # of sentences
VOCABULARY = 10 * len(SIZES)
CPU = torch.device("cpu")


@pytest.fixture
def text(tmp_path):
    """A text whose token t of sentence s is the id 10 s + t, written in two parts."""
    ids = [10 * s + t for s, size in enumerate(SIZES) for t in range(size)]
    text = IndexedText(tmp_path / "train", len(ids), len(SIZES), VOCABULARY)
    text.create()
    half = sum(SIZES[:90])
    text.write(half, 90, np.array(ids[half:]), np.array(SIZES[90:]))
    text.write(0, 0, np.array(ids[:half]), np.array(SIZES[:90]))
    return open_text(tmp_path / "train", VOCABULARY)


def columns(text, batch_size=3, number=0, **options):
    result = SentenceColumns(text, batch_size, 5, CPU, **{"group_tokens": 100, **options})
    result.start_pass(number)
    return result


def all_rows(text, **options):
    rows = columns(text, **options)
    return rows[0 : len(rows)]


def test_an_index_has_the_layout_of_megatron(text):
    """Read it as Megatron does: header, lengths, first bytes, documents."""
    data = text.idx_file.read_bytes()
    n = len(SIZES)
    assert data[:18] == b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x04"
    assert np.frombuffer(data, "<u8", 2, offset=18).tolist() == [n, n + 1]
    assert np.frombuffer(data, "<i4", n, offset=34).tolist() == SIZES
    pointers = np.frombuffer(data, "<i8", n, offset=34 + 4 * n)
    assert pointers.tolist() == (4 * (np.cumsum(SIZES) - SIZES)).tolist()
    assert np.frombuffer(data, "<i8", offset=34 + 12 * n).tolist() == list(range(n + 1))
    tokens = np.fromfile(text.bin_file, "<i4")
    assert tokens[pointers[150] // 4 :][: SIZES[150]].tolist() == [1500 + t for t in range(SIZES[150])]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_full_disk_is_an_error_that_names_the_file(text, suffix):
    file = text.path.with_suffix(suffix)
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(UserError, match=rf"train\{suffix}"):
        text.write(0, 0, np.array([1, 2]), np.array([2]))


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_cut_file_is_an_error_that_names_it(text, suffix):
    file = text.path.with_suffix(suffix)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"train\.bin"):
        open_text(text.path, VOCABULARY)


def change(file, dtype, offset, value):
    """Overwrite one number of a file."""
    np.memmap(file, dtype, "r+", offset, (1,))[0] = value


@pytest.mark.parametrize("value", [-1, VOCABULARY])
def test_an_id_outside_the_vocabulary_is_an_error_that_names_the_file(text, value):
    change(text.bin_file, "<i4", 4 * (text.tokens // 2), value)
    with pytest.raises(UserError, match=r"train\.bin"):
        all_rows(text)


@pytest.mark.parametrize("value", [0, -5, 50])
def test_a_damaged_length_is_an_error_that_names_the_index(text, value):
    change(text.idx_file, "<i4", HEADER.size + 4 * 77, value)
    with pytest.raises(UserError, match=r"train\.idx"):
        all_rows(text)


@pytest.mark.parametrize("value", [0, -40, 4 * 10**6])
def test_a_damaged_position_is_an_error_that_names_the_index(text, value):
    first_of_group = int(columns(text).bounds[3])
    change(text.idx_file, "<i8", HEADER.size + 4 * len(SIZES) + 8 * first_of_group, value)
    with pytest.raises(UserError, match=r"train\.idx"):
        all_rows(text)


def test_a_pass_contains_every_sentence_once(text):
    """One column: nothing is dropped, and no sentence is broken."""
    ids = all_rows(text, batch_size=1)[:, 0].tolist()
    sentences = [i // 10 for i in ids if i % 10 == 0]
    assert ids == [10 * s + t for s in sentences for t in range(SIZES[s])]
    assert sorted(sentences) == list(range(len(SIZES)))
    assert sentences != sorted(sentences)


def orders(text, number):
    """Return the order of the groups in a pass, and the order of the sentences of each group, from 0."""
    rows = columns(text, batch_size=1, number=number)
    sentences = np.array([i // 10 for i in rows[0 : len(rows)][:, 0].tolist() if i % 10 == 0])
    group = np.searchsorted(rows.bounds, sentences, side="right") - 1
    within = [(sentences[group == g] - rows.bounds[g]).tolist() for g in range(len(rows.group_rows))]
    return list(dict.fromkeys(group.tolist())), within


def test_every_pass_permutes_the_groups_and_the_sentences_of_each(text):
    groups, within = orders(text, 0)
    next_groups, next_within = orders(text, 1)
    assert sorted(groups) == sorted(next_groups) == list(range(len(within)))
    assert groups != next_groups
    assert all(first != second for first, second in zip(within, next_within, strict=True))
    assert len({len(order) for order in within}) < len(within) == len(set(map(tuple, within)))


def test_columns_read_a_group_one_after_the_other(text):
    """With one group, B columns are `batches.columns` of the permuted text."""
    one = all_rows(text, batch_size=1, group_tokens=10**6)[:, 0]
    three = all_rows(text, batch_size=3, group_tokens=10**6)
    assert three.t().reshape(-1).equal(one[: three.numel()])


def test_groups_drop_less_than_a_row_each(text):
    rows = columns(text, batch_size=3)
    assert len(rows.group_rows) > 3
    assert 0 <= text.tokens - 3 * len(rows) < 3 * len(rows.group_rows)
    assert len(all_rows(text).flatten().unique()) == 3 * len(rows)


def test_a_pass_depends_only_on_the_seed_and_its_number(text):
    first = all_rows(text, number=1)
    assert first.equal(all_rows(text, number=1))
    assert not first.equal(all_rows(text, number=2))
    other = SentenceColumns(text, 3, seed=6, device=CPU, group_tokens=100)
    other.start_pass(1)
    assert not first.equal(other[0 : len(other)])


def test_any_rows_can_be_read_at_any_time(text):
    whole = all_rows(text)
    for start in (0, 7, 60, 130, len(whole) - 2):
        rows = columns(text)  # nothing is loaded yet, as after a restart
        stop = min(start + 90, len(whole))  # across groups
        assert rows[start:stop].equal(whole[start:stop])
        assert rows[start + 1 : stop].equal(whole[start + 1 : stop])


def test_a_process_can_read_some_of_the_columns(text):
    assert all_rows(text, part=slice(1, 3)).equal(all_rows(text)[:, 1:3])


def test_too_little_text_for_the_batch_is_an_error(text):
    with pytest.raises(UserError, match="batch_size"):
        columns(text, batch_size=500)
