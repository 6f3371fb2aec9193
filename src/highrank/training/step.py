"""One update: forward, backward, clipping, NT-ASGD and bookkeeping, on the device from end to end.

    loss = mean nll + alpha mean(g^2) + beta mean((raw_t - raw_(t-1))^2)

Nothing here waits for the device or branches on what it computes: a loss or gradient that is not finite turns the
update into nothing, resets the carried hidden state and is counted. So the same lines run eagerly on a CPU and inside
a CUDA graph, and the host reads the totals when it likes.

Shapes: words and targets (T, B); the batch may be cut into micro-batches that each carry their own hidden state.
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

# For the loss on a GPU, unless the head has its own: who trains a model there has them, and large slabs are faster.
TRAINING_SLAB_BYTES = 512 * 2**20
MIXED_LOSS_SCALE = 1024.0  # lifts float16 gradients of a mean over a thousand tokens out of underflow


class Precision(NamedTuple):
    """Autocast dtypes (None: none) and the factor that keeps half-precision gradients from vanishing."""

    backbone: torch.dtype | None
    head: torch.dtype | None
    loss_scale: float = 1.0

    @staticmethod
    def name_of(name: PrecisionName, device: torch.device) -> PrecisionName:
        """What "auto" means on a device."""
        return name if name != "auto" else "mixed" if device.type == "cuda" else "float32"

    @classmethod
    def of(cls, name: PrecisionName, device: torch.device) -> "Precision":
        name = cls.name_of(name, device)
        if name == "mixed" and device.type != "cuda":
            name = "bfloat16"  # float16 on a CPU buys nothing
        if name == "mixed":
            return cls(torch.float16, torch.bfloat16, MIXED_LOSS_SCALE)
        return cls(torch.bfloat16, torch.bfloat16) if name == "bfloat16" else cls(None, None)


class Totals(NamedTuple):
    """What has happened since the last read."""

    loss_sum: float  # nats
    tokens: int
    skipped: int
    skipped_in_a_row: int  # up to now
    last_loss: float


class Step:
    """Calls update the model's weights; `hidden` is carried from window to window."""

    def __init__(self, model: LanguageModel, optimizer: NTASGD, train: TrainSpec, device: torch.device) -> None:
        self.model, self.optimizer, self.train, self.device = model, optimizer, train, device
        self.precision = Precision.of(train.precision, device)
        micro = train.micro_batch_size or train.batch_size
        # By micro-batch: one tensor for all layers' h and c, side by side, so that a step renews it in a few kernels.
        sizes = [x.shape[1] for state in model.initial_state(1) for x in state]
        self._carried = [
            torch.cat([x for state in model.initial_state(micro) for x in state], dim=1)
            for _ in range(train.batch_size // micro)
        ]
        parts = [carried.split(sizes, dim=1) for carried in self._carried]
        self.hidden: list[list[State]] = [list(zip(p[::2], p[1::2], strict=True)) for p in parts]
        self._lr = torch.zeros((), device=device)
        # loss sum, tokens, skipped, skipped in a row, last loss
        self._totals = torch.zeros(5, dtype=torch.float64, device=device)

    def __call__(self, words: Tensor, targets: Tensor, lr: float) -> None:
        self._lr.fill_(lr)
        self._update(words, targets)

    def reset_hidden(self) -> None:
        for carried in self._carried:
            carried.zero_()

    def load_hidden(self, hidden: list[list[State]]) -> None:
        for mine, theirs in zip(self.hidden, hidden, strict=True):
            for (h, c), (new_h, new_c) in zip(mine, theirs, strict=True):
                h.copy_(new_h)
                c.copy_(new_c)

    @property
    def skipped_in_a_row(self) -> int:
        return int(self._totals[3].item())

    @skipped_in_a_row.setter
    def skipped_in_a_row(self, count: int) -> None:
        self._totals[3] = count

    def read(self) -> Totals:
        """Totals since the last read; waits for the device."""
        loss_sum, tokens, skipped, in_a_row, last = self._totals.tolist()
        self._totals[:3] = 0
        return Totals(loss_sum, int(tokens), int(skipped), int(in_a_row), last)

    def _update(self, words: Tensor, targets: Tensor) -> None:
        train, (_, _, scale) = self.train, self.precision
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
        """The model's forward pass in the precision of training."""
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
        # Small kernels add up in a graph, so scalars are combined in as few as they need.
        train, (_, _, scale) = self.train, self.precision
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        finite = (norm + loss).abs() < math.inf  # false for NaN too
        # Gradients come times `scale` and leave with a norm of at most `clip`: min(1, clip / (norm / scale)) / scale.
        shrink = (train.clip / (norm + 1e-6 * scale)).clamp(max=1 / scale)
        self.optimizer.step(self._lr, shrink, finite)

        for carried, state in zip(self._carried, states, strict=True):
            carried.copy_(torch.where(finite, torch.cat([x for pair in state for x in pair], dim=1), 0.0))
        counted = finite.double()
        self._totals[:3] += torch.stack([torch.where(finite, loss, 0.0) * tokens, counted * tokens, 1 - counted])
        self._totals[3:] = torch.stack([(self._totals[3] + 1) * (1 - counted), loss])
