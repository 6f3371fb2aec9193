"""Dialog modelling as a task: batches of contexts and responses, in a new random order in every pass.

The loss of a batch is the sum over the real words of its responses, divided by the mean number of such words per batch:
every word counts the same, in a batch of long responses as in one of short ones. No state is carried from batch to
batch.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from highrank.data.dialog import Batch, DialogBatches, DialogCorpus
from highrank.evaluation.dialog import evaluate_dialogs
from highrank.evaluation.perplexity import Evaluation
from highrank.models.seq2seq import Seq2Seq, build_seq2seq
from highrank.recipes.dialog import DialogRecipe
from highrank.training.precision import Precision, autocast, training_slab_bytes
from highrank.training.state import TrainingState
from highrank.training.task import Backward, Minibatch


class DialogTask:
    """A new sequence-to-sequence model and the dialogs that it learns from."""

    def __init__(self, recipe: DialogRecipe, corpus: DialogCorpus, device: torch.device) -> None:
        train = recipe.train
        self.seed = train.seed
        self.device = device
        self.precision = Precision.of(train.precision, device)
        sizes = {split: train.batch_size if split == "train" else train.eval_batch_size for split in corpus.splits}
        self.batches = {
            split: DialogBatches(
                dialogs,
                sizes[split],
                context_size=recipe.data.context_size,
                fill=split == "train" and device.type == "cuda",  # a CUDA graph needs batches of one size
                device=device,
            )
            for split, dialogs in corpus.splits.items()
        }
        self.pass_length = len(self.batches["train"].plan())
        self.mean_tokens = self.batches["train"].n_tokens / self.pass_length
        self.model: Seq2Seq = build_seq2seq(recipe.model, corpus.vocab_size).to(device)
        self.model.head.sample_below = train.sample_below
        self.carried = torch.empty(0, device=device)  # nothing

    def start_stage(self, stage: int) -> None:
        pass

    def minibatches(self, state: TrainingState, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the remaining batches of the pass.

        Their order depends on the seed and the pass only, so a resumed run finds the same order without `rng`.
        """
        order = np.random.default_rng([self.seed, state.passes])
        for i, batch in enumerate(self.batches["train"].batches(order, state.row), start=state.row + 1):
            yield Minibatch(batch, i)

    def repeats(self, *tensors: Tensor) -> bool:
        return True  # bucketed lengths have few values

    def backward(self, *tensors: Tensor) -> Backward:
        batch = Batch(*tensors)
        tokens = batch.target_mask.sum()
        total = self.score(batch).sum()
        (total / self.mean_tokens * self.precision.loss_scale).backward()
        return Backward(total.detach().double() / tokens, tokens, self.carried)

    def score(self, batch: Batch) -> Tensor:
        """Run the model's forward pass in the precision of training; the loss of padding is 0."""
        with autocast(self.device, self.precision.backbone):
            g = self.model.backbone(batch)
        with autocast(self.device, self.precision.head):
            return self.model.score(g, batch, slab_bytes=training_slab_bytes(self.model.head, self.device))

    def validate(self) -> float:
        return evaluate_dialogs(self.model, self.batches["valid"], score=self.score).nll

    def evaluate(self, split: str) -> Evaluation:
        return evaluate_dialogs(self.model, self.batches[split])
