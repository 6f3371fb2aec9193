"""Scores of a sequence-to-sequence model on dialogs: perplexity of the responses, and BLEU of generated ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from highrank.data.dialog import (
    BOS,
    EOS,
    OTHER,
    PAD,
    SAME,
    SPECIAL_WORDS,
    UNK,
    Batch,
    DialogBatches,
    Utterance,
    encode_dialogs,
    join_words,
)
from highrank.evaluation.beam import Hypotheses, beam_search, sample
from highrank.evaluation.bleu import BleuScores, corpus_bleu, precision_recall
from highrank.evaluation.perplexity import Evaluation, in_eval_mode
from highrank.models.seq2seq import Seq2Seq
from highrank.progress import OnProgress, no_progress
from highrank.recipes.dialog import DecodingSpec, DialogDataSpec

NEVER_GENERATED = (PAD, UNK, BOS, SAME, OTHER)


@dataclass(frozen=True)
class Responses:
    """The responses of a model to each context of a split, and the references in the same order."""

    hypotheses: list[list[list[int]]]  # by context and rank: word ids
    references: list[list[list[int]]]  # by context: the word ids of the real response, and of others as good

    def bleu(self) -> BleuScores:
        """Return precision and recall of sentence BLEU."""
        return precision_recall(self.hypotheses, self.references)

    def corpus_bleu(self) -> float:
        """Return the corpus BLEU of the best hypothesis of every context."""
        return corpus_bleu([own[0] for own in self.hypotheses], self.references)


@torch.no_grad()
@in_eval_mode
def evaluate_dialogs(
    model: Seq2Seq,
    batches: DialogBatches,
    *,
    score: Callable[[Batch], Tensor] | None = None,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Compute the loss of every response word, with one <eos> per response, batch by batch.

    `score` replaces the model's forward pass, for example to validate in the precision of training.
    """
    losses = []
    plan = batches.plan()
    for done, examples in enumerate(plan, 1):
        batch = batches.build(examples)
        losses.append((score or model)(batch)[batch.target_mask].double())
        on_progress(done, len(plan))
    return Evaluation(torch.cat(losses))


@torch.no_grad()
@in_eval_mode
def generate_responses(
    model: Seq2Seq,
    batches: DialogBatches,
    decoding: DecodingSpec,
    on_progress: OnProgress = no_progress,
) -> Responses:
    """Search for the best responses to every context of a split.

    Hypotheses never contain <unk>, so unknown words of a reference count as missed.
    """
    responses = Responses([], [])
    plan = batches.plan()
    for done, examples in enumerate(plan, 1):
        batch = batches.build(examples)
        found = _decode(model, batch, decoding)
        responses.hypotheses.extend(found.to_lists())
        lengths = batch.target_mask.sum(0).tolist()
        targets = batch.targets.t().tolist()
        for b, example in enumerate(examples):
            responses.references.append([targets[b][: lengths[b] - 1], *batches.references[example]])
        on_progress(done, len(plan))
    return responses


@dataclass(frozen=True)
class Reply:
    words: list[str]
    score: float  # log-probability; with a length penalty, divided as `highrank.evaluation.beam` says

    @property
    def text(self) -> str:
        return join_words(self.words)


@torch.no_grad()
@in_eval_mode
def find_replies(
    model: Seq2Seq,
    words: Sequence[str],  # the vocabulary by id
    dialog: Sequence[Utterance],  # at least one; unknown words become <unk>
    respondent: str,  # the speaker of the replies
    data: DialogDataSpec,
    decoding: DecodingSpec,
    temperature: float | None = None,
) -> list[Reply]:
    """Return replies to a dialog by falling score: the best ones, or random ones if there is a temperature."""
    placeholder = Utterance(respondent, [SPECIAL_WORDS[UNK]])  # an example needs a response, which decoding ignores
    dialogs = encode_dialogs([[*dialog, placeholder]], words, data.max_words)
    batches = DialogBatches(dialogs, 1, context_size=data.context_size, device=model.backbone.embedding.device)
    batch = batches.build(np.array([batches.n_examples - 1]))
    found = _decode(model, batch, decoding, temperature)
    scores = found.score[:, 0].tolist()
    replies = [Reply([words[i] for i in ids], score) for ids, score in zip(found.to_lists()[0], scores, strict=False)]
    return sorted(replies, key=lambda reply: -reply.score)


def _decode(model: Seq2Seq, batch: Batch, decoding: DecodingSpec, temperature: float | None = None) -> Hypotheses:
    """Search for responses to a batch, or sample them if there is a temperature."""
    start = torch.full_like(batch.context[0], BOS)
    state = model.encode(batch.context, batch.context_mask)
    limits: dict[str, Any] = {"eos": EOS, "max_length": decoding.max_length, "forbidden": NEVER_GENERATED}
    if temperature is not None:
        return sample(model, start, state, n_samples=decoding.n_best, temperature=temperature, **limits)
    return beam_search(
        model,
        start,
        state,
        beam_size=decoding.beam_size,
        n_best=decoding.n_best,
        length_penalty=decoding.length_penalty,
        **limits,
    )
