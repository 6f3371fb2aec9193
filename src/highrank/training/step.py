"""One update: forward, backward, clipping, NT-ASGD and bookkeeping, all on the device.

    loss = mean nll + alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2)

The code never waits for the device and never branches on a computed value. If the loss or the gradient is not finite,
masks skip the update, zero the carried hidden state and count the window. The same lines therefore run eagerly on a CPU
and inside a CUDA graph, and the host may read the totals at any time.

Shapes: words and targets are (T, B). The batch may be split into micro-batches, each with its own hidden state.
"""

import contextlib
import math
from typing import NamedTuple

import torch
from torch import Tensor

from highrank.models.awd_lstm import Hidden
from highrank.models.language_model import LanguageModel
from highrank.ops.activation_penalty import activation_penalty
from highrank.ops.lstm import State
from highrank.recipes.recipe import PrecisionName, TrainSpec
from highrank.training.nt_asgd import NTASGD

# Memory for the loss on a GPU, unless the head sets its own. Larger slabs are faster, and a GPU for training has room.
TRAINING_SLAB_BYTES = 512 * 2**20
MIXED_LOSS_SCALE = 1024.0  # keeps float16 gradients of a mean over a thousand tokens from underflowing


class Precision(NamedTuple):
    """Autocast dtypes (None: no autocast) and the factor that keeps half-precision gradients from underflowing."""

    backbone: torch.dtype | None
    head: torch.dtype | None
    loss_scale: float = 1.0

    @staticmethod
    def name_of(name: PrecisionName, device: torch.device) -> PrecisionName:
        """Replace "auto" by the precision that it selects on `device`."""
        if name != "auto":
            return name
        return "mixed" if device.type == "cuda" else "float32"

    @classmethod
    def of(cls, name: PrecisionName, device: torch.device) -> "Precision":
        """Return the dtypes and the loss scale of a named precision."""
        name = cls.name_of(name, device)
        if name == "mixed" and device.type != "cuda":
            name = "bfloat16"  # float16 is no faster on a CPU
        if name == "mixed":
            return cls(torch.float16, torch.bfloat16, MIXED_LOSS_SCALE)
        return cls(torch.bfloat16, torch.bfloat16) if name == "bfloat16" else cls(None, None)


class Totals(NamedTuple):
    """Sums since the last read, and the state after the last window."""

    loss_sum: float  # nats
    tokens: int
    skipped: int
    skipped_in_a_row: int  # including windows before the last read
    last_loss: float  # nats per token


class Step:
    """A callable that updates the model on one window. `hidden` is carried from window to window."""

    def __init__(self, model: LanguageModel, optimizer: NTASGD, train: TrainSpec, device: torch.device) -> None:
        self.model = model
        self.optimizer = optimizer
        self.train = train
        self.device = device
        self.precision = Precision.of(train.precision, device)
        micro = train.micro_batch_size or train.batch_size
        # One tensor per micro-batch holds h and c of all layers side by side, so a few kernels update all of them.
        sizes = [x.shape[1] for state in model.initial_state(1) for x in state]
        self.carried = [
            torch.cat([x for state in model.initial_state(micro) for x in state], dim=1)
            for _ in range(train.batch_size // micro)
        ]
        parts = [carried.split(sizes, dim=1) for carried in self.carried]
        self.hidden: list[list[State]] = [list(zip(p[::2], p[1::2], strict=True)) for p in parts]
        self._lr = torch.zeros((), device=device)
        # loss sum, tokens, skipped, skipped in a row, last loss
        self._totals = torch.zeros(5, dtype=torch.float64, device=device)

    def __call__(self, words: Tensor, targets: Tensor, lr: float) -> None:
        self._lr.fill_(lr)
        self._update(words, targets)

    def reset_hidden(self) -> None:
        """Zero the carried hidden states."""
        for carried in self.carried:
            carried.zero_()

    @property
    def skipped_in_a_row(self) -> int:
        return int(self._totals[3].item())

    @skipped_in_a_row.setter
    def skipped_in_a_row(self, count: int) -> None:
        self._totals[3] = count

    def read(self) -> Totals:
        """Return the totals since the last read, after waiting for the device."""
        loss_sum, tokens, skipped, in_a_row, last = self._totals.tolist()
        self._totals[:3] = 0
        return Totals(loss_sum, int(tokens), int(skipped), int(in_a_row), last)

    def _update(self, words: Tensor, targets: Tensor) -> None:
        train = self.train
        scale = self.precision.loss_scale
        micro = train.micro_batch_size or train.batch_size
        self.model.train()
        self.optimizer.zero_grad()
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        states = []
        for i, start in enumerate(range(0, train.batch_size, micro)):
            part = slice(start, start + micro)
            nll, hidden = self.score(words[:, part], targets[:, part], self.hidden[i])
            mean = nll.mean()
            share = micro / train.batch_size
            penalty = activation_penalty(hidden.g, hidden.raw, train.alpha, train.beta)
            ((mean + penalty) * (share * scale)).backward()
            loss += mean.detach().double() * share
            states.append(hidden.state)
        self._apply(loss, states, targets.numel())

    def score(self, words: Tensor, targets: Tensor, state: list[State]) -> tuple[Tensor, Hidden]:
        """Run the model's forward pass in the precision of training."""
        with self._autocast(self.precision.backbone):
            hidden = self.model.backbone(words, state)
        with self._autocast(self.precision.head):
            return self.model.head.nll(hidden.g, targets, slab_bytes=self._slab_bytes()), hidden

    def _slab_bytes(self) -> int | None:
        own = self.model.head.slab_bytes
        return TRAINING_SLAB_BYTES if own is None and self.device.type == "cuda" else own

    def _autocast(self, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    @torch.no_grad()
    def _apply(self, loss: Tensor, states: list[list[State]], tokens: int) -> None:
        # Small kernels add up in a graph, so scalars are combined into as few operations as possible.
        scale = self.precision.loss_scale
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        finite = (norm + loss).abs() < math.inf  # false for NaN too
        # The gradients are multiplied by `scale`. Remove it and clip: shrink = min(1, clip / (norm / scale)) / scale.
        shrink = (self.train.clip / (norm + 1e-6 * scale)).clamp(max=1 / scale)
        self.optimizer.step(self._lr, shrink, finite)

        for carried, state in zip(self.carried, states, strict=True):
            carried.copy_(torch.where(finite, torch.cat([x for pair in state for x in pair], dim=1), 0.0))
        counted = finite.double()
        self._totals[:3] += torch.stack([torch.where(finite, loss, 0.0) * tokens, counted * tokens, 1 - counted])
        self._totals[3:] = torch.stack([(self._totals[3] + 1) * (1 - counted), loss])
