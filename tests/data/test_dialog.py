import json

import numpy as np
import pytest
import torch

from highrank.data.dialog import (
    BOS,
    EOS,
    OTHER,
    PAD,
    SAME,
    SPECIAL_WORDS,
    UNK,
    DialogBatches,
    Utterance,
    build_vocabulary,
    encode_dialogs,
    join_words,
    read_dialog_corpus,
    read_dialogs,
    split_words,
)
from highrank.errors import UserError

WORDS = [*SPECIAL_WORDS, *"abcdefgh"]


def utterances(*texts):
    """Parse "A: words" into utterances."""
    return [Utterance(text[0], text[3:].split()) for text in texts]


def write_dialogs(path, *dialogs):
    lines = [
        json.dumps({"topic": "x", "utts": [[u.speaker, " ".join(u.words), ["act"]] for u in dialog]})
        for dialog in dialogs
    ]
    path.write_text("\n".join(lines) + "\n")


def random_dialogs(rng, n=12):
    return [
        [Utterance(rng.choice(["A", "B"]), list(rng.choice(list("abcdefgh"), rng.integers(1, 9)))) for _ in range(size)]
        for size in rng.integers(1, 12, n)
    ]


def columns(batches):
    """Return every example as (context, inputs, targets) without padding, in order of appearance."""
    return [
        tuple(
            tuple(words[mask[:, b], b].tolist())
            for words, mask in (
                (batch.context, batch.context_mask),
                (batch.inputs, batch.target_mask),
                (batch.targets, batch.target_mask),
            )
        )
        for batch in batches
        for b in range(batch.context.shape[1])
        if batch.target_mask[0, b]
    ]


def expected_columns(dialogs, context_size):
    """Build the same examples by hand."""
    examples = []
    for dialog in dialogs:
        for i in range(1, len(dialog)):
            respondent, response, _ = dialog[i]
            context = []
            for speaker, words, _ in dialog[max(0, i - context_size) : i]:
                context += [SAME if speaker == respondent else OTHER, *(WORDS.index(w) for w in words)]
            ids = [WORDS.index(w) for w in response]
            examples.append((tuple(context), (BOS, *ids), (*ids, EOS)))
    return examples


def test_words_are_lower_case_and_apart_from_punctuation():
    assert " ".join(split_words("It's  a <eos> dog,\tuh-huh")) == "it ' s a < eos > dog , uh - huh"
    assert join_words(split_words("it's uh-huh")) == "it's uh-huh"


def test_a_file_is_read_without_empty_turns_and_blank_lines(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"utts": [["A", "a b", ["x"]], ["B", "  "], ["B", "c"]], "id": 3}\n\n{"utts": []}\n')
    assert read_dialogs(path) == [utterances("A: a b", "B: c"), []]


def test_utterances_may_have_several_references(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text('{"utts": [["A", "hi"], ["B", "Hello!"]], "references": [[], ["hi there", "hey"]]}\n')
    greeting, answer = read_dialogs(path)[0]
    assert greeting.references == ()
    assert answer.references == (["hi", "there"], ["hey"])


@pytest.mark.parametrize(
    "line",
    [
        '{"utts": [', '{"turns": []}', '{"utts": [["A"]]}', '{"utts": [["A", 3]]}', "[1]",
        '{"utts": [["A", "a"]], "references": []}', '{"utts": [["A", "a"]], "references": ["b"]}',
        '{"utts": ["do you like music", "yes"]}', '{"utts": [{"speaker": "A", "text": "a"}]}',
    ],
)  # fmt: skip
def test_a_broken_line_is_named_by_file_and_number(tmp_path, line):
    path = tmp_path / "train.jsonl"
    path.write_text('{"utts": []}\n\n' + line + "\n")
    with pytest.raises(UserError, match=r"train\.jsonl, line 3"):
        read_dialogs(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_missing_or_binary_file_is_a_user_error(tmp_path, content):
    if content:
        (tmp_path / "train.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"train\.jsonl"):
        read_dialogs(tmp_path / "train.jsonl")


def test_the_vocabulary_holds_the_most_frequent_training_words():
    dialogs = [utterances("A: c b b", "B: a c c d")]
    assert build_vocabulary(dialogs, 8) == [*SPECIAL_WORDS, "c", "b"]
    assert build_vocabulary(dialogs, 100) == [*SPECIAL_WORDS, "c", "b", "a", "d"]
    with pytest.raises(UserError):
        build_vocabulary(dialogs, 6)


def test_a_corpus_folder_becomes_splits_over_the_training_vocabulary(tmp_path):
    write_dialogs(tmp_path / "train.jsonl", utterances("A: a b", "B: a"))
    write_dialogs(tmp_path / "valid.jsonl", utterances("A: a z", "B: b"))
    write_dialogs(tmp_path / "test.jsonl", utterances("A: b", "B: y a"))
    corpus = read_dialog_corpus(tmp_path)
    assert corpus.words == [*SPECIAL_WORDS, "a", "b"]
    assert corpus.vocab_size == 8
    assert corpus.splits["valid"].words.tolist() == [SAME, 6, UNK, SAME, 7]
    assert corpus.splits["test"].words.tolist() == [SAME, 7, SAME, UNK, 6]
    assert corpus.fingerprint == read_dialog_corpus(tmp_path).fingerprint
    assert corpus.fingerprint != read_dialog_corpus(tmp_path, max_words=1).fingerprint
    write_dialogs(tmp_path / "test.jsonl", utterances("A: b", "B: y b"))
    assert corpus.fingerprint != read_dialog_corpus(tmp_path).fingerprint


def test_a_split_without_a_response_is_a_user_error(tmp_path):
    for split in ("train", "test"):
        write_dialogs(tmp_path / f"{split}.jsonl", utterances("A: a", "B: b"))
    write_dialogs(tmp_path / "valid.jsonl", utterances("A: a"))
    with pytest.raises(UserError, match=r"valid\.jsonl"):
        read_dialog_corpus(tmp_path)


def test_long_utterances_are_cut():
    dialogs = encode_dialogs([utterances("A: a b c", "B: d e f")], WORDS, max_words=2)
    (batch,) = DialogBatches(dialogs, batch_size=1).batches()
    a, b, d, e = (WORDS.index(w) for w in "abde")
    assert columns([batch]) == [((OTHER, a, b), (BOS, d, e), (d, e, EOS))]


def test_a_single_speaker_is_always_the_same():
    dialogs = encode_dialogs([utterances("A: a", "A: b", "A: c")], WORDS, max_words=40)
    examples = columns(DialogBatches(dialogs, batch_size=2).batches())
    assert all(OTHER not in context for context, _, _ in examples)


def test_a_response_still_to_come_has_a_context():
    dialogs = encode_dialogs([utterances("A: a b", "B: ")], WORDS, max_words=40)
    (batch,) = DialogBatches(dialogs, batch_size=1).batches()
    a, b = (WORDS.index(w) for w in "ab")
    assert columns([batch]) == [((OTHER, a, b), (BOS,), (EOS,))]


@pytest.mark.parametrize("context_size", [1, 3, 100])
def test_batches_hold_every_example_once(context_size):
    rng = np.random.default_rng(0)
    dialogs = random_dialogs(rng)
    source = DialogBatches(encode_dialogs(dialogs, WORDS, 40), batch_size=4, context_size=context_size)
    expected = sorted(expected_columns(dialogs, context_size))
    assert source.n_examples == len(expected)
    assert sorted(columns(source.batches())) == expected
    assert sorted(columns(source.batches(rng))) == expected


@pytest.mark.parametrize("fill", [False, True])
def test_padding_is_pad_and_shapes_are_few(fill):
    dialogs = encode_dialogs(random_dialogs(np.random.default_rng(1), n=60), WORDS, 40)
    shapes = set()
    source = DialogBatches(dialogs, batch_size=4, context_multiple=16, response_multiple=4, fill=fill)
    for batch in source.batches():
        assert (batch.context[~batch.context_mask] == PAD).all()
        assert (batch.inputs[~batch.target_mask] == PAD).all()
        assert (batch.targets[~batch.target_mask] == PAD).all()
        assert batch.context_mask[0].all()  # no empty context, also in columns that fill up a batch
        assert batch.context.shape[1] == (4 if fill else batch.target_mask.any(0).sum())
        assert len(batch.context) % 16 == 0
        assert len(batch.targets) % 4 == 0
        shapes.add((len(batch.context), len(batch.targets)))
    assert len(shapes) <= 7 * 3


def test_shuffled_batches_depend_on_the_seed_only_and_resume_anywhere():
    dialogs = encode_dialogs(random_dialogs(np.random.default_rng(2)), WORDS, 40)
    source = DialogBatches(dialogs, batch_size=4)
    whole = list(source.batches(np.random.default_rng(5)))
    again = list(source.batches(np.random.default_rng(5), start=3))
    assert len(again) == len(whole) - 3
    for a, b in zip(whole[3:], again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert columns(source.batches(np.random.default_rng(6))) != columns(whole)


def test_switchboard_has_the_published_counts(corpora):
    folder = corpora / "switchboard"
    if not folder.exists():
        pytest.skip("no switchboard/ among the real corpora")
    for split, n_dialogs, n_utterances in (("valid", 60, 5225), ("test", 62, 5543)):
        dialogs = read_dialogs(folder / f"{split}.jsonl")
        assert (len(dialogs), sum(map(len, dialogs))) == (n_dialogs, n_utterances)
        source = DialogBatches(encode_dialogs(dialogs, build_vocabulary(dialogs, 1000), 40), batch_size=32)
        assert source.n_examples == n_utterances - n_dialogs
        assert sum(int(batch.target_mask[0].sum()) for batch in source.batches()) == source.n_examples
