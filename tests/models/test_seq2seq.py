import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from highrank.data.dialog import Batch
from highrank.heads import SoftmaxHead
from highrank.models.seq2seq import EncoderDecoder, Seq2Seq, attend, build_seq2seq
from highrank.recipes.dialog import Seq2SeqSpec
from highrank.recipes.switchboard import RECIPES

V = 23
SPEC = Seq2SeqSpec("mos", embed_dim=6, encoder_size=5, decoder_size=8, attention_size=7, n_components=3)
SOFTMAX = dataclasses.replace(SPEC, head="softmax", n_components=1, attention_size=6)
SPECS = [SOFTMAX, dataclasses.replace(SPEC, head="moc"), SPEC]


def example_batch(context_lengths=(4, 7, 1), response_lengths=(3, 1, 5), extra=0):
    """Return a batch of random words; `extra` rows of padding are added to contexts and responses."""
    generator = torch.Generator().manual_seed(3)
    longest = max(context_lengths), max(response_lengths)
    context = torch.randint(V, (longest[0], len(context_lengths)), generator=generator)
    inputs = torch.randint(V, (longest[1], len(context_lengths)), generator=generator)
    targets = torch.randint(V, inputs.shape, generator=generator)
    context, inputs, targets = (F.pad(words, (0, 0, 0, extra)) for words in (context, inputs, targets))
    context_mask = torch.arange(len(context))[:, None] < torch.tensor(context_lengths)
    target_mask = torch.arange(len(inputs))[:, None] < torch.tensor(response_lengths)
    return Batch(context, context_mask, inputs, targets, target_mask)


def loss_and_gradients(model, batch):
    model.zero_grad()
    nll = model(batch)
    nll.sum().backward()
    return nll.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.head)
def test_padding_never_changes_a_loss_or_a_gradient(spec):
    model = build_seq2seq(spec, V).double()
    batch = example_batch()
    nll, gradients = loss_and_gradients(model, batch)
    assert nll.shape == batch.targets.shape
    assert (nll[~batch.target_mask] == 0).all()
    assert (nll[batch.target_mask] > 0).all()

    longer, longer_gradients = loss_and_gradients(model, example_batch(extra=4))
    torch.testing.assert_close(longer[: len(nll)], nll, rtol=1e-12, atol=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(longer_gradients[name], gradient, rtol=1e-10, atol=1e-12)

    # Other words in the padding make no difference either.
    noisy = batch._replace(
        context=batch.context.masked_fill(~batch.context_mask, 9),
        inputs=batch.inputs.masked_fill(~batch.target_mask, 9),
        targets=batch.targets.masked_fill(~batch.target_mask, 9),
    )
    noisy_nll, noisy_gradients = loss_and_gradients(model, noisy)
    torch.testing.assert_close(noisy_nll, nll, rtol=1e-12, atol=1e-12)
    for name, gradient in gradients.items():
        torch.testing.assert_close(noisy_gradients[name], gradient, rtol=1e-10, atol=1e-12)


def test_a_column_does_not_depend_on_the_other_columns():
    model = build_seq2seq(SPEC, V).double()
    batch = example_batch()
    nll = model(batch)
    for column in range(3):
        alone = Batch(*(x[:, column : column + 1] for x in batch))
        torch.testing.assert_close(model(alone)[:, 0], nll[:, column], rtol=1e-12, atol=1e-12)


def test_the_encoder_equals_torchs_bidirectional_lstm_on_packed_sequences():
    model = EncoderDecoder(V, 6, 5, 8, 7)
    batch = example_batch()
    reference = nn.LSTM(6, 5, bidirectional=True)
    for layer, suffix in ((model.forward_encoder, ""), (model.backward_encoder, "_reverse")):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(reference, f"{name}_l0{suffix}").data.copy_(getattr(layer, name))
    packed = nn.utils.rnn.pack_padded_sequence(
        F.embedding(batch.context, model.embedding), batch.context_mask.sum(0), enforce_sorted=False
    )
    output, (h, _) = reference(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(output)
    state = model.encode(batch.context, batch.context_mask)
    torch.testing.assert_close(state.memory * batch.context_mask[..., None], expected)
    torch.testing.assert_close(torch.cat([state.h, state.c], -1), torch.tanh(model.bridge(torch.cat([h[0], h[1]], -1))))


def test_attention_is_a_weighted_mean_of_real_memory():
    queries, keys, memory = torch.randn(3, 2, 4), torch.randn(5, 2, 4), torch.randn(5, 2, 6)
    mask = torch.tensor([[True, True], [True, False], [True, False], [False, False], [False, False]])
    result = attend(queries, keys, memory, mask)
    for t in range(3):
        weights = torch.softmax(keys[:3, 0] @ queries[t, 0], dim=0)
        torch.testing.assert_close(result[t, 0], weights @ memory[:3, 0])
        torch.testing.assert_close(result[t, 1], memory[0, 1])  # a single real word


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.head)
def test_step_by_step_decoding_equals_the_parallel_loss(spec):
    model = build_seq2seq(spec, V).double()
    batch = example_batch()
    nll = model(batch)
    state = model.encode(batch.context, batch.context_mask)
    for words, targets, mask, expected in zip(batch.inputs, batch.targets, batch.target_mask, nll, strict=True):
        log_prob, state = model.step(words, state)
        torch.testing.assert_close(log_prob.exp().sum(-1), torch.ones(3, dtype=torch.float64))
        actual = -log_prob.gather(1, targets[:, None])[:, 0]
        torch.testing.assert_close(actual[mask], expected[mask], rtol=1e-10, atol=1e-10)


def test_several_rows_per_context_attend_to_their_own_context():
    model = build_seq2seq(SPEC, V).double()
    batch = example_batch()
    state = model.encode(batch.context, batch.context_mask)
    words = torch.randint(V, (2, 3))
    expected = torch.cat([model.step(row, state)[0] for row in words])
    both, new_state = model.step(words.flatten(), model.select_rows(state, torch.arange(3).repeat(2)))
    torch.testing.assert_close(both, expected)
    swapped = model.select_rows(new_state, torch.tensor([3, 4, 5, 0, 1, 2]))
    torch.testing.assert_close(swapped.h, new_state.h.view(2, 3, -1).flip(0).flatten(0, 1))
    assert swapped.memory is new_state.memory


def test_with_one_component_moc_and_mos_agree():
    mos = build_seq2seq(dataclasses.replace(SPEC, n_components=1), V)
    moc = build_seq2seq(dataclasses.replace(SPEC, head="moc", n_components=1), V)
    moc.load_state_dict(mos.state_dict())
    torch.testing.assert_close(mos(example_batch()), moc(example_batch()))


def test_dropout_acts_in_training_only():
    dropouts = {"dropout_input": 0.5, "dropout_output": 0.5, "dropout_latent": 0.5}
    for name, rate in dropouts.items():
        model = build_seq2seq(dataclasses.replace(SPEC, **{name: rate}), V)
        assert not torch.equal(model(example_batch()), model(example_batch()))
        model.eval()
        assert torch.equal(model(example_batch()), model(example_batch()))


def test_bfloat16_autocast_changes_the_loss_little():
    model = build_seq2seq(SPEC, V)
    with torch.autocast("cpu", torch.bfloat16):
        nll = model(example_batch())
    assert nll.dtype == torch.float32
    torch.testing.assert_close(nll, model(example_batch()), rtol=0.02, atol=0.02)


def test_embeddings_are_shared_and_counted_once():
    model = build_seq2seq(SPEC, V)
    assert model.head.weight is model.backbone.embedding
    assert model.n_parameters() == sum(p.numel() for p in set(model.parameters()))


def test_a_head_of_the_wrong_size_is_an_error():
    with pytest.raises(ValueError, match="attention_size"):
        Seq2Seq(EncoderDecoder(V, 6, 5, 8, 7), SoftmaxHead(6, V))


def test_the_recipes_have_equally_many_parameters():
    counts = {}
    for recipe in RECIPES:
        with torch.device("meta"):
            counts[recipe.name] = build_seq2seq(recipe.model, recipe.data.vocab_size).n_parameters()
    assert counts == {"swda-softmax": 5_699_284, "swda-moc": 5_702_200, "swda-mos": 5_702_200}
    assert max(counts.values()) <= 1.01 * min(counts.values())
