"""The recipe of a language model: its data, model and training, as frozen dataclasses.

`dialog.py` defines the recipe of a dialog model, and `settings.py` overrides and checks the values of both.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

HeadName = Literal["softmax", "moc", "mos"]
PrecisionName = Literal["auto", "float32", "bfloat16", "mixed"]
AveragingName = Literal["nt-asgd", "two-tailed", "none"]


@dataclass(frozen=True)
class DataSpec:
    """The training text: a corpus of the catalog, a folder with three text files, or a prepared corpus."""

    corpus: str
    level: Literal["word", "char", "bpe"] = "word"  # a folder with a tokenizer replaces "word" by its own level


@dataclass(frozen=True)
class ModelSpec:
    """Head, sizes and dropout rates, from which `highrank.models.build_model` builds a model."""

    head: HeadName
    embed_dim: int  # D, of the tied input and output embeddings
    hidden_sizes: tuple[int, ...]  # of the LSTM layers
    n_components: int = 1  # K
    lower_components: tuple[int, ...] = ()  # DOC: how many of the K belong to each layer below the last, downwards
    tied: bool = True
    dropout_words: float = 0.0  # drops whole words from the embedding
    dropout_input: float = 0.0  # variational, on the embedded words
    dropout_hidden: float = 0.0  # variational, between layers
    dropout_output: float = 0.0  # variational, on g
    dropout_latent: float = 0.0  # variational, on the context vectors h
    shared_latent_mask: bool = False  # whether that dropout drops the same features in all K components
    weight_drop: float = 0.0  # on the recurrent matrices


@dataclass(frozen=True)
class ScheduleSpec:
    """Updates, epochs and stages, for any model; `highrank.training.stages` explains the stages."""

    lr: float
    batch_size: int
    seed: int
    optimizer: Literal["sgd", "adam"] = "sgd"
    finetune_lr: float | None = None  # None: same as lr
    clip: float = 0.25  # maximum norm of the gradient
    weight_decay: float = 1.2e-6
    # two-tailed: adaptive, from the first step (`training.two_tailed`). none: the learning rate is annealed instead.
    averaging: AveragingName = "nt-asgd"
    nonmono: int = 5  # averaging or annealing starts when validation is worse than the best before this many epochs
    anneal: float = 4.0  # divides the learning rate, with averaging "none"
    patience: int = 10  # a stage ends when validation is worse than the best before its last `patience` epochs
    updates_per_epoch: int | None = None  # an epoch, and so a validation, is this many updates; None: one pass
    max_epochs: int = 1000  # of the first stage
    finetunes: int = 1  # how many finetuning stages follow
    finetune_max_epochs: int = 1000  # of each
    eval_batch_size: int = 10  # columns, for validation after each epoch
    sample_below: float | None = None  # mixtures: the loss samples gradients of smaller responsibilities; None: exact
    # auto: mixed on an NVIDIA GPU, float32 elsewhere. mixed: float16 LSTM (cuDNN's persistent kernel), bfloat16 head.
    precision: PrecisionName = "auto"


@dataclass(frozen=True)
class TrainSpec(ScheduleSpec):
    """A schedule, the windows over the columns of a text, and the penalties of a language model."""

    bptt: int = 70  # mean window length
    max_over_bptt: int = 20  # the longest window is bptt + this
    window_multiple: int = 1  # window lengths are rounded to multiples of this, so that few CUDA graphs are needed
    alpha: float = 2.0  # AR: activation regularisation of g
    beta: float = 1.0  # TAR: temporal activation regularisation of the raw hidden states
    adversarial: float = 0.0  # eps of adversarial softmax (`ops.mos_nll.adversarial`)
    finetune_adversarial: float | None = None  # None: same as adversarial
    input_noise: float = 0.0  # standard deviation of normal noise on the embedded words, in the first stage
    load_penalty: float = 0.0  # times the squared coefficient of variation of the prior's load (`training.language`)
    partial_shuffle: bool = False  # start each column at a random row, every epoch (`data.batches.rotate`)


@dataclass(frozen=True)
class DynamicSettings:
    """Settings of dynamic evaluation (`highrank.evaluation.dynamic`); defaults: the paper's for PTB (appendix B.1)."""

    lr: float = 0.002
    lamb: float = 0.075
    epsilon: float = 0.001
    segment: int = 5
    stats_batch_size: int = 100


@dataclass(frozen=True)
class CacheSettings:
    """Settings of the continuous cache (`highrank.evaluation.cache`); defaults: Merity et al.'s for Penn Treebank."""

    window: int = 500
    theta: float = 1.0
    lamb: float = 0.1


@dataclass(frozen=True)
class PaperResult:
    """Perplexities, or bits per character, that the paper prints for a recipe, shown beside ours."""

    valid: float
    test: float
    table: str
    finetuned: bool = False
    train: float | None = None  # printed for characters and One Billion Word only


@dataclass(frozen=True)
class Recipe:
    name: str
    about: str
    data: DataSpec
    model: ModelSpec
    train: TrainSpec
    paper: tuple[PaperResult, ...] = field(default=(), compare=False)

    def specs(self) -> dict[str, Any]:
        """Return the parts of the recipe whose values can be overridden."""
        return {"data": self.data, "model": self.model, "train": self.train}

    def resolved(self) -> dict[str, Any]:
        """Return everything that determines the result of a run, as a run folder stores it."""
        return {"name": self.name} | {part: dataclasses.asdict(spec) for part, spec in self.specs().items()}
