"""Dialog runs: load their models, and score what they answer."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from highrank.data.dialog import DialogBatches, DialogCorpus
from highrank.errors import UserError
from highrank.evaluation.dialog import evaluate_dialogs, generate_responses
from highrank.evaluation.perplexity import Evaluation
from highrank.models.seq2seq import Seq2Seq, build_seq2seq
from highrank.progress import OnStage, no_stages
from highrank.recipes.dialog import DecodingSpec, DialogRecipe
from highrank.runs.folder import Run
from highrank.runs.provenance import Provenance, provenance


class LoadedDialog(NamedTuple):
    model: Seq2Seq  # in evaluation mode
    words: list[str]  # the vocabulary by id
    recipe: DialogRecipe

    def batches(self, corpus: DialogCorpus, split: str) -> DialogBatches:
        """Return the batches in which a split is evaluated."""
        return DialogBatches(
            corpus.splits[split],
            self.recipe.train.eval_batch_size,
            context_size=self.recipe.data.context_size,
            device=self.model.backbone.embedding.device,
        )


def load_dialog(run: Path, device: str | torch.device = "cpu") -> LoadedDialog:
    """Load the best model of a dialog run, its vocabulary and its recipe."""
    opened = Run(run)
    recipe = opened.recipe()
    if not isinstance(recipe, DialogRecipe):
        raise UserError(f"{run} is a language model, not a dialog model: continue a text with 'highrank generate'.")
    words = opened.words()
    model = build_seq2seq(recipe.model, len(words))
    opened.load_weights(model)
    return LoadedDialog(model.to(device).eval(), words, recipe)


@dataclass(frozen=True)
class DialogScores:
    """BLEU of the responses that a model generates for the contexts of a split."""

    split: str
    contexts: int
    precision: tuple[float, ...]  # BLEU-1 to BLEU-4 (`highrank.evaluation.bleu`)
    recall: tuple[float, ...]
    corpus_bleu: float  # of the best responses, between 0 and 1
    decoding: DecodingSpec
    beam_seconds: float  # of beam search over the whole split
    provenance: Provenance


def dialog_perplexity(
    loaded: LoadedDialog, corpus: DialogCorpus, split: str, on_stage: OnStage = no_stages
) -> Evaluation:
    """Compute the perplexity of the responses of a split."""
    return evaluate_dialogs(loaded.model, loaded.batches(corpus, split), on_progress=partial(on_stage, split))


def dialog_scores(
    loaded: LoadedDialog, corpus: DialogCorpus, split: str, on_stage: OnStage = no_stages
) -> DialogScores:
    """Generate responses to every context of a split as the recipe asks for, and score them."""
    decoding = loaded.recipe.decoding
    batches = loaded.batches(corpus, split)
    start = time.perf_counter()
    responses = generate_responses(loaded.model, batches, decoding, partial(on_stage, "beam search"))
    seconds = time.perf_counter() - start
    bleu = responses.bleu()
    return DialogScores(
        split=split,
        contexts=batches.n_examples,
        precision=bleu.precision,
        recall=bleu.recall,
        corpus_bleu=responses.corpus_bleu(),
        decoding=decoding,
        beam_seconds=seconds,
        provenance=Provenance(**provenance(batches.device)),
    )
