"""The recipe of a run: its data, model and training, as frozen dataclasses.

Every value can be overridden by its dotted key, for example `train.lr=15` or `model.n_components=5`.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from highrank.errors import UserError, nearest

HeadName = Literal["softmax", "moc", "mos"]
PrecisionName = Literal["auto", "float32", "bfloat16", "mixed"]
AveragingName = Literal["nt-asgd", "two-tailed"]


@dataclass(frozen=True)
class DataSpec:
    """The training text: a corpus of the catalog, or any folder with train.txt, valid.txt and test.txt."""

    corpus: str
    level: Literal["word", "char"] = "word"


@dataclass(frozen=True)
class ModelSpec:
    """Head, sizes and dropout rates, from which `highrank.models.build_model` builds a model."""

    head: HeadName
    embed_dim: int  # D, of the tied input and output embeddings
    hidden_sizes: tuple[int, ...]  # of the LSTM layers
    n_components: int = 1  # K
    tied: bool = True
    dropout_words: float = 0.0  # drops whole words from the embedding
    dropout_input: float = 0.0  # variational, on the embedded words
    dropout_hidden: float = 0.0  # variational, between layers
    dropout_output: float = 0.0  # variational, on g
    dropout_latent: float = 0.0  # variational, on the context vectors h
    weight_drop: float = 0.0  # on the recurrent matrices


@dataclass(frozen=True)
class TrainSpec:
    """Updates, epochs and stages; `highrank.training.stages` explains the stages."""

    lr: float
    batch_size: int
    seed: int
    finetune_lr: float | None = None  # None: same as lr
    micro_batch_size: int | None = None  # None: the whole batch at once
    bptt: int = 70  # mean window length
    max_over_bptt: int = 20  # the longest window is bptt + this
    window_multiple: int = 1  # window lengths are rounded to multiples of this, so that few CUDA graphs are needed
    clip: float = 0.25  # maximum norm of the gradient
    weight_decay: float = 1.2e-6
    alpha: float = 2.0  # AR: activation regularisation of g
    beta: float = 1.0  # TAR: temporal activation regularisation of the raw hidden states
    partial_shuffle: bool = False  # start each column at a random row, every epoch (`data.batches.rotate`)
    averaging: AveragingName = "nt-asgd"  # two-tailed: adaptive, from the first step (`training.two_tailed`)
    nonmono: int = 5  # nt-asgd starts when validation is worse than the best before the last `nonmono` epochs
    patience: int = 10  # a stage ends when validation is worse than the best before its last `patience` epochs
    max_epochs: int = 1000  # of the first stage
    finetunes: int = 1  # how many finetuning stages follow
    finetune_max_epochs: int = 1000  # of each
    eval_batch_size: int = 10  # columns, for validation after each epoch
    precision: PrecisionName = "auto"
    # auto: mixed on an NVIDIA GPU, float32 elsewhere. mixed: float16 LSTM (cuDNN's persistent kernel), bfloat16 head.


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
    train: float | None = None  # printed for characters only


@dataclass(frozen=True)
class Recipe:
    name: str
    about: str
    data: DataSpec
    model: ModelSpec
    train: TrainSpec
    paper: tuple[PaperResult, ...] = field(default=(), compare=False)

    def resolved(self) -> dict[str, Any]:
        """Return everything that determines the result of a run, as a run folder stores it."""
        return {
            "name": self.name,
            "data": dataclasses.asdict(self.data),
            "model": dataclasses.asdict(self.model),
            "train": dataclasses.asdict(self.train),
        }


def flat(resolved: dict[str, Any]) -> dict[str, Any]:
    """{"train": {"lr": 20}} -> {"train.lr": 20}"""
    return {f"{part}.{key}": v for part, spec in resolved.items() if isinstance(spec, dict) for key, v in spec.items()}


def from_resolved(data: Any, where: str) -> Recipe:
    """Rebuild and check the recipe that `resolved()` returned; `where` names its file in errors."""
    try:
        model = ModelSpec(**{**data["model"], "hidden_sizes": tuple(data["model"]["hidden_sizes"])})
        recipe = Recipe(data["name"], "", DataSpec(**data["data"]), model, TrainSpec(**data["train"]))
        check(recipe)
    except (KeyError, TypeError, UserError) as error:
        raise UserError(f"{where} does not hold a valid recipe ({error}).") from None
    return recipe


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """Return `recipe` with settings such as "train.lr=15" applied, and checked."""
    specs: dict[str, Any] = {"data": recipe.data, "model": recipe.model, "train": recipe.train}
    keys = list(flat(recipe.resolved()))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f'"{setting}" is not a setting: write key=value, for example train.lr=15.')
        if key not in keys:
            full_key = next((known for known in keys if known.endswith(f".{key}")), key)  # "lr" suggests "train.lr"
            raise UserError(f'there is no recipe key "{key}"{nearest(full_key, keys)}')
        part, name = key.split(".")
        hint = typing.get_type_hints(type(specs[part]))[name]
        specs[part] = dataclasses.replace(specs[part], **{name: _parse(key, text, hint)})
    changed = dataclasses.replace(recipe, **specs)
    check(changed)
    return changed


def check(recipe: Recipe) -> None:
    """Raise a UserError that names the first key whose value cannot be used."""
    for part in ("data", "model", "train"):
        spec = getattr(recipe, part)
        for name, hint in typing.get_type_hints(type(spec)).items():
            _check_value(f"{part}.{name}", getattr(spec, name), hint)
    model = recipe.model
    train = recipe.train
    if not model.hidden_sizes or min(model.hidden_sizes) < 1:
        raise UserError(f"model.hidden_sizes must be one positive size per layer, got {model.hidden_sizes}.")
    if train.seed >= 2**63:
        raise UserError(f"train.seed must be below 2^63, got {train.seed}.")
    if model.head == "softmax" and model.tied and model.hidden_sizes[-1] != model.embed_dim:
        raise UserError(
            f"a tied softmax head needs its last hidden size ({model.hidden_sizes[-1]}) equal to model.embed_dim "
            f"({model.embed_dim}): change one of them or set model.tied=false."
        )
    if train.micro_batch_size and train.batch_size % train.micro_batch_size:
        raise UserError(
            f"train.batch_size ({train.batch_size}) must be a multiple of train.micro_batch_size "
            f"({train.micro_batch_size})."
        )


MAY_BE_ZERO = (
    "train.weight_decay",
    "train.alpha",
    "train.beta",
    "train.max_over_bptt",
    "train.finetunes",
    "train.seed",
)


def _check_value(key: str, value: Any, hint: Any) -> None:
    """Check a choice against its Literal, and a number against its range."""
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise UserError(f'{key} cannot be "{value}"{nearest(str(value), typing.get_args(hint))}')
    elif hint not in (int, float, int | None, float | None) or value is None:
        return
    elif "drop" in key:  # the dropout rates and weight_drop
        if not 0 <= value < 1:
            raise UserError(f"{key} must be at least 0 and below 1, got {value}.")
    elif key in MAY_BE_ZERO:
        if not 0 <= value < math.inf:
            raise UserError(f"{key} must be finite and not negative, got {value}.")
    elif not 0 < value < math.inf and not (key == "train.clip" and value == math.inf):  # inf turns clipping off
        raise UserError(f"{key} must be finite and positive, got {value}.")


def _parse(key: str, text: str, hint: Any) -> Any:
    """Convert `text` to a value of the annotated type."""
    if typing.get_origin(hint) is types.UnionType:
        if text.lower() == "none":
            return None
        (hint,) = [a for a in typing.get_args(hint) if a is not type(None)]
    kind = typing.get_origin(hint) or hint
    wanted = {int: "a whole number", float: "a number", bool: "true or false", tuple: "numbers separated by commas"}
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            return tuple(int(part) for part in text.strip("[]()").split(",") if part.strip())
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        raise UserError(f'{key} must be {wanted[kind]}, got "{text}".') from None
