"""Language modelling as a task: windows of random length over parallel columns, with a carried hidden state.

    loss = mean nll + alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2) + load_penalty var(load) / mean(load)^2

g and raw are the last layer's output with and without dropout; alpha and beta weigh AR and TAR (Merity et al. 2017).
load (B, K) is the sum of the mixture weights over time: the last term makes components share the work (DOC).

With `train.partial_shuffle` every pass starts by rotating the columns. The sentences of a prepared corpus are permuted
instead (`data.sentences`).

Shapes: T rows, B columns; words and targets of a window are (length, B).

    # differs from the paper's code: the whole batch is computed at once, not in micro-batches.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from highrank.data.batches import Rows, columns, random_windows, rotate
from highrank.data.corpus import Corpus
from highrank.data.sentences import SentenceColumns
from highrank.errors import UserError
from highrank.evaluation.perplexity import Evaluation, evaluate
from highrank.heads import MoSHead
from highrank.models import LanguageModel, build_model
from highrank.models.awd_lstm import Hidden
from highrank.ops.activation_penalty import activation_penalty
from highrank.ops.lstm import State
from highrank.recipes.recipe import Recipe
from highrank.training.precision import Precision, autocast, training_slab_bytes
from highrank.training.ranks import Ranks
from highrank.training.state import TrainingState
from highrank.training.task import Backward, Minibatch


class LanguageTask:
    """A new language model and the columns that it learns from: those of its rank, if there are several."""

    def __init__(self, recipe: Recipe, corpus: Corpus, device: torch.device, ranks: Ranks) -> None:
        self.train = recipe.train
        self.corpus = corpus
        self.device = device
        self.precision = Precision.of(recipe.train.precision, device)
        batch_size = recipe.train.batch_size
        self.part = ranks.columns(batch_size)
        width = self.part.stop - self.part.start
        if width == 0:
            raise UserError(f"{ranks.size} processes cannot share {batch_size} columns: raise train.batch_size.")
        self.share = width / batch_size  # of this rank in the batch; losses and gradients of all ranks are summed
        self.columns: Tensor | SentenceColumns
        if corpus.texts is None:
            self.columns = columns(corpus.splits["train"], batch_size)[:, self.part].to(device)  # (T, B)
        else:
            self.columns = SentenceColumns(corpus.texts["train"], batch_size, recipe.train.seed, device, self.part)
        self.stream: Rows = self.columns  # the columns in this pass's rotation
        self.model: LanguageModel = build_model(recipe.model, corpus.vocab_size).to(device)
        self.model.head.sample_below = recipe.train.sample_below
        self.new_hidden()

    def new_hidden(self) -> None:
        """Allocate a zero hidden state, in the dtype of the model."""
        states = [x for pair in self.model.initial_state(self.part.stop - self.part.start) for x in pair]
        # One tensor holds h and c of all layers side by side, so a few kernels update all of them.
        self.carried = torch.cat(states, dim=1)
        parts = self.carried.split([x.shape[1] for x in states], dim=1)
        self.hidden: list[State] = list(zip(parts[::2], parts[1::2], strict=True))  # by layer; views into `carried`

    @property
    def pass_length(self) -> int:
        return len(self.columns) - 1  # the last row is only a target

    def start_stage(self, stage: int) -> None:
        train = self.train
        self.model.backbone.input_noise = train.input_noise if stage == 0 else 0.0
        eps = train.adversarial
        if stage > 0 and train.finetune_adversarial is not None:
            eps = train.finetune_adversarial
        self.model.head.adversarial = eps

    def minibatches(self, state: TrainingState, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Yield the remaining windows of the pass. The learning rate is proportional to their lengths."""
        train = self.train
        if isinstance(self.columns, SentenceColumns):
            self.columns.start_pass(state.passes)
        elif train.partial_shuffle:
            if state.row == 0:
                state.offsets = rng.integers(len(self.columns), size=train.batch_size).tolist()
            self.stream = rotate(self.columns, state.offsets[self.part])
        windows = random_windows(self.stream, rng, train.bptt, train.max_over_bptt, train.window_multiple, state.row)
        for start, words, targets in windows:
            yield Minibatch((words, targets), start + len(words), len(words) / train.bptt)

    def repeats(self, *tensors: Tensor) -> bool:
        return len(tensors[0]) % self.train.window_multiple == 0

    def backward(self, *tensors: Tensor) -> Backward:
        words, targets = tensors
        train = self.train
        nll, hidden = self.score(words, targets, self.hidden)
        mean = nll.mean()
        last = hidden.g[..., : hidden.raw.shape[-1]]  # without the states of lower layers
        penalty = activation_penalty(last, hidden.raw, train.alpha, train.beta)
        if train.load_penalty:
            penalty = penalty + train.load_penalty * self.load_variation(hidden.g)
        ((mean + penalty) * (self.share * self.precision.loss_scale)).backward()
        carried = torch.cat([x for pair in hidden.state for x in pair], dim=1)
        return Backward(mean.detach().double() * self.share, len(words) * train.batch_size, carried)

    def score(self, words: Tensor, targets: Tensor, state: list[State]) -> tuple[Tensor, Hidden]:
        """Run the model's forward pass in the precision of training; return nll and hidden states."""
        head = self.model.head
        with autocast(self.device, self.precision.backbone):
            hidden = self.model.backbone(words, state)
        with autocast(self.device, self.precision.head):
            return head.nll(hidden.g, targets, slab_bytes=training_slab_bytes(head, self.device)), hidden

    def load_variation(self, g: Tensor) -> Tensor:
        """Return the squared coefficient of variation of the prior's load, over columns and components.

        Each rank computes it for its own columns. Weighted by columns, the mean over ranks is the value of the batch.
        """
        assert isinstance(self.model.head, MoSHead)
        load = self.model.head.log_prior(g).exp().mean(dim=0)  # (B, K), over time, which does not change the result
        # The load of every column sums to 1. So the mean is 1 / K, and no rank needs the columns of the others.
        components = load.shape[1]
        entries = self.train.batch_size * components
        return (components * load - 1).square().mean() * entries / (entries - 1)

    def validate(self) -> float:
        return evaluate(self.model, self.corpus.ids("valid"), self.train.eval_batch_size, score=self.score).nll

    def evaluate(self, split: str) -> Evaluation:
        return evaluate(self.model, self.corpus.ids(split))
