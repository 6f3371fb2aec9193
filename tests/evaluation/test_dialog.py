import math

import numpy as np
import pytest
import torch
from torch import nn

from highrank.data.dialog import EOS, SPECIAL_WORDS, UNK, DialogBatches, Utterance, encode_dialogs
from highrank.evaluation.beam import beam_search
from highrank.evaluation.bleu import corpus_bleu, precision_recall
from highrank.evaluation.dialog import NEVER_GENERATED, evaluate_dialogs, generate_responses
from highrank.models.seq2seq import build_seq2seq
from highrank.recipes.dialog import DecodingSpec, Seq2SeqSpec

WORDS = [*SPECIAL_WORDS, *"abcdefgh"]
SPEC = Seq2SeqSpec("mos", 6, encoder_size=5, decoder_size=8, attention_size=7, n_components=3, dropout_input=0.5)
DECODING = DecodingSpec(beam_size=3, n_best=2, max_length=4)


@pytest.fixture
def model():
    model = build_seq2seq(SPEC, len(WORDS))
    nn.init.normal_(model.backbone.embedding)
    return model


@pytest.fixture
def dialogs():
    rng = np.random.default_rng(0)
    letters = list("abcdefghz")  # z is unknown
    utterances = [Utterance("AB"[i % 2], list(rng.choice(letters, rng.integers(1, 7)))) for i in range(12)]
    return encode_dialogs([utterances], WORDS, 40)


def test_the_loss_does_not_depend_on_the_batches(model, dialogs):
    results = [evaluate_dialogs(model, DialogBatches(dialogs, size)) for size in (1, 4)]
    assert results[0].nll == pytest.approx(results[1].nll, rel=1e-5)
    # All utterances but the first, each with as many targets as it has tokens: <eos> in place of <same>.
    assert results[0].tokens == results[1].tokens == dialogs.starts[-1] - dialogs.starts[1]
    assert model.training  # the mode is restored


def test_the_loss_is_the_mean_over_all_response_words(model, dialogs):
    batches = DialogBatches(dialogs, 4)
    model.eval()
    nll = torch.cat([model(batch)[batch.target_mask] for batch in batches.batches()])
    result = evaluate_dialogs(model, batches)
    assert result.nll == pytest.approx(nll.mean().item(), rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(nll.mean().item()), rel=1e-5)


def test_responses_come_from_beam_search(model, dialogs):
    alone = generate_responses(model, DialogBatches(dialogs, 1), DECODING)
    batches = DialogBatches(dialogs, 4)
    together = generate_responses(model, batches, DECODING)
    assert together.hypotheses == alone.hypotheses  # both visit examples in the order of their buckets
    assert together.references == alone.references
    assert len(together.references) == batches.n_examples
    assert {UNK} <= {word for own in together.references for reference in own for word in reference}
    generated = {word for own in together.hypotheses for words in own for word in words}
    assert not generated & {EOS, *NEVER_GENERATED}

    batch = DialogBatches(dialogs, 1).build(DialogBatches(dialogs, 1).plan()[0])
    model.eval()
    found = beam_search(
        model,
        batch.inputs[0],
        model.encode(batch.context, batch.context_mask),
        eos=EOS,
        beam_size=3,
        n_best=2,
        max_length=4,
        forbidden=NEVER_GENERATED,
    )
    assert alone.hypotheses[0] == found.to_lists()[0]


def test_scores_compare_hypotheses_with_all_references(model):
    first = Utterance("A", ["a"])
    second = Utterance("B", ["c", "d", "e"], (["f", "z"], []))
    third = Utterance("A", ["g"])
    dialogs = encode_dialogs([[first, second], [first, third]], WORDS, 40)
    responses = generate_responses(model, DialogBatches(dialogs, 4), DECODING)
    c, d, e, f, g = (WORDS.index(letter) for letter in "cdefg")
    references = [[[c, d, e], [f, UNK]], [[g]]]  # a reference without a word is left out
    assert responses.references == references
    assert responses.bleu() == precision_recall(responses.hypotheses, references)
    assert responses.corpus_bleu() == corpus_bleu([own[0] for own in responses.hypotheses], references)
