"""What a recipe is: the data, the model and the training of one run, as frozen data.

Every value can be overridden on the command line by its dotted name: `--set train.lr=15 --set model.n_components=5`.
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
    """What to train on: a corpus of the catalog, or any folder with train.txt, valid.txt and test.txt."""

    corpus: str
    level: Literal["word", "char"] = "word"


@dataclass(frozen=True)
class ModelSpec:
    """Sizes and dropouts; the keyword arguments of `LanguageModel`."""

    head: HeadName
    embed_dim: int  # D, of the tied input and output embeddings
    hidden_sizes: tuple[int, ...]  # of the LSTM layers
    n_components: int = 1  # K
    tied: bool = True
    dropout_words: float = 0.0  # whole words out of the embedding
    dropout_input: float = 0.0  # variational, on the embedded words
    dropout_hidden: float = 0.0  # variational, between layers
    dropout_output: float = 0.0  # variational, on g
    dropout_latent: float = 0.0  # variational, on the context vectors h
    weight_drop: float = 0.0  # on the recurrent matrices


@dataclass(frozen=True)
class TrainSpec:
    """Updates, epochs and stages; the docstring of `highrank.training.stages` tells what each stage does."""

    lr: float
    batch_size: int
    seed: int
    finetune_lr: float | None = None  # None: the same as lr
    micro_batch_size: int | None = None  # None: the whole batch at once
    bptt: int = 70  # mean window length
    max_over_bptt: int = 20  # the longest window is bptt + this
    window_multiple: int = 1  # window lengths are rounded to multiples of this; CUDA graphs want few of them
    clip: float = 0.25  # of the gradient's norm
    weight_decay: float = 1.2e-6
    alpha: float = 2.0  # AR: activation regularisation of g
    beta: float = 1.0  # TAR: temporal activation regularisation of the raw hidden states
    partial_shuffle: bool = False  # every epoch, each column starts at a random row of its own (`data.batches.rotate`)
    averaging: AveragingName = "nt-asgd"  # two-tailed: from the first step, adaptively (`training.two_tailed`)
    nonmono: int = 5  # nt-asgd averages once validation is worse than the best of all epochs but the last `nonmono`
    patience: int = 10  # a stage ends when its averaged validation is worse than the best but the last `patience`
    max_epochs: int = 1000  # of the first stage
    finetunes: int = 1  # how many finetuning stages follow
    finetune_max_epochs: int = 1000  # of each
    eval_batch_size: int = 10  # columns, for validation after each epoch
    precision: PrecisionName = "auto"
    # auto: mixed on an NVIDIA GPU, float32 elsewhere. mixed: float16 LSTM (cuDNN's persistent kernel), bfloat16 head.


@dataclass(frozen=True)
class DynamicSettings:
    """Of dynamic evaluation (`highrank.evaluation.dynamic`); the defaults are the paper's for PTB (appendix B.1)."""

    lr: float = 0.002
    lamb: float = 0.075
    epsilon: float = 0.001
    segment: int = 5
    stats_batch_size: int = 100


@dataclass(frozen=True)
class CacheSettings:
    """Of the continuous cache (`highrank.evaluation.cache`); the defaults are Merity et al.'s for Penn Treebank."""

    window: int = 500
    theta: float = 1.0
    lamb: float = 0.1


@dataclass(frozen=True)
class PaperResult:
    """Perplexities that the paper prints for a recipe; only for showing beside ours."""

    valid: float
    test: float
    table: str
    finetuned: bool = False


@dataclass(frozen=True)
class Recipe:
    name: str
    about: str
    data: DataSpec
    model: ModelSpec
    train: TrainSpec
    paper: tuple[PaperResult, ...] = field(default=(), compare=False)

    def resolved(self) -> dict[str, Any]:
        """What a run folder stores: everything that decides the run's result."""
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
    """The recipe in a run folder; a foreign or damaged one gets one sentence."""
    try:
        model = ModelSpec(**{**data["model"], "hidden_sizes": tuple(data["model"]["hidden_sizes"])})
        recipe = Recipe(data["name"], "", DataSpec(**data["data"]), model, TrainSpec(**data["train"]))
        check(recipe)
        return recipe
    except (KeyError, TypeError, UserError) as error:
        raise UserError(f"{where} holds no recipe that this version of highrank understands ({error}).") from None


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """`recipe` with `key=value` settings applied; unknown keys and wrong types get one sentence."""
    specs: dict[str, Any] = {"data": recipe.data, "model": recipe.model, "train": recipe.train}
    keys = [f"{part}.{f.name}" for part, spec in specs.items() for f in dataclasses.fields(spec)]
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f'"{setting}" is not a setting: write --set key=value, for example --set train.lr=15.')
        if key not in keys:
            whole = next((known for known in keys if known.endswith(f".{key}")), key)  # lr: train.lr is meant
            raise UserError(f'there is no recipe key "{key}"{nearest(whole, keys)}')
        part, name = key.split(".")
        hint = typing.get_type_hints(type(specs[part]))[name]
        specs[part] = dataclasses.replace(specs[part], **{name: _parse(key, text, hint)})
    changed = dataclasses.replace(recipe, **specs)
    check(changed)
    return changed


def check(recipe: Recipe) -> None:
    """One sentence for values that no training can use."""
    m, t = recipe.model, recipe.train
    for part in ("data", "model", "train"):
        spec = getattr(recipe, part)
        for name, hint in typing.get_type_hints(type(spec)).items():
            if typing.get_origin(hint) is Literal and getattr(spec, name) not in typing.get_args(hint):
                value = getattr(spec, name)
                raise UserError(f'{part}.{name} cannot be "{value}"{nearest(str(value), typing.get_args(hint))}')
    for name in ("dropout_words", "dropout_input", "dropout_hidden", "dropout_output", "dropout_latent", "weight_drop"):
        if not 0 <= getattr(m, name) < 1:
            raise UserError(f"model.{name} must be at least 0 and below 1, got {getattr(m, name)}.")
    positive = {"model.embed_dim": m.embed_dim, "model.n_components": m.n_components, "train.lr": t.lr}
    counts = ("batch_size", "bptt", "eval_batch_size", "window_multiple", "max_epochs", "finetune_max_epochs")
    positive |= {f"train.{name}": getattr(t, name) for name in (*counts, "nonmono", "patience", "clip")}
    for name in ("micro_batch_size", "finetune_lr"):
        if getattr(t, name) is not None:
            positive[f"train.{name}"] = getattr(t, name)
    positive |= {f"model.hidden_sizes[{i}]": size for i, size in enumerate(m.hidden_sizes)}
    for key, value in positive.items():
        if not value > 0:
            raise UserError(f"{key} must be positive, got {value}.")
        if value == math.inf and key != "train.clip":  # which then clips nothing
            raise UserError(f"{key} must be finite, got {value}.")
    for key in ("weight_decay", "alpha", "beta", "max_over_bptt", "finetunes", "seed"):
        if not 0 <= getattr(t, key) < math.inf:
            wanted = "be finite" if getattr(t, key) == math.inf else "not be negative"
            raise UserError(f"train.{key} must {wanted}, got {getattr(t, key)}.")
    if t.seed >= 2**63:
        raise UserError(f"train.seed must be below 2^63, got {t.seed}.")
    if not m.hidden_sizes:
        raise UserError("model.hidden_sizes needs at least one size, for example --set model.hidden_sizes=960,620.")
    if m.head == "softmax" and m.tied and m.hidden_sizes[-1] != m.embed_dim:
        raise UserError(
            f"a tied softmax head needs its last hidden size ({m.hidden_sizes[-1]}) equal to model.embed_dim "
            f"({m.embed_dim}): change one of them or add --set model.tied=false."
        )
    if t.micro_batch_size and t.batch_size % t.micro_batch_size:
        raise UserError(
            f"train.batch_size ({t.batch_size}) must be a multiple of train.micro_batch_size ({t.micro_batch_size})."
        )


def _parse(key: str, text: str, hint: Any) -> Any:
    """`text` as a value of the annotated type."""
    if typing.get_origin(hint) is types.UnionType:
        if text.lower() == "none":
            return None
        (hint,) = [a for a in typing.get_args(hint) if a is not type(None)]
    if typing.get_origin(hint) is Literal:
        if text not in typing.get_args(hint):
            raise UserError(f'{key} cannot be "{text}"{nearest(text, typing.get_args(hint))}')
        return text
    try:
        if hint is bool:
            return {"true": True, "false": False}[text.lower()]
        if typing.get_origin(hint) is tuple:
            return tuple(int(part) for part in text.strip("[]()").split(",") if part.strip())
        return hint(text)
    except (ValueError, KeyError):
        kinds = {int: "a whole number", float: "a number", bool: "true or false"}
        wanted = kinds.get(hint, "whole numbers separated by commas")
        raise UserError(f'{key} must be {wanted}, got "{text}".') from None
