"""Give a Hugging Face causal language model a mixture of softmaxes as its output layer.

`convert` changes one model: its output layer becomes `MoSHead.from_linear(lm_head, K)`, and its class a subclass that
trains with the mixture's loss. `save_pretrained` and `from_pretrained` work as before. config.json gets a model type of
its own, so that `AutoModelForCausalLM` without `import highrank.hf` fails instead of dropping the mixture.

Shapes: hidden states h (B, T, D), labels (B, T), M of which count.
"""

import copy
import functools
import inspect
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from highrank.errors import UserError
from highrank.heads import Head, MoSHead
from highrank.hf.pretrained import has_plain_logits

MODEL_TYPE = "highrank_mixture"  # in config.json
MIXTURE_MODULES = ["prior", "latent", "shift"]  # for `modules_to_save` of PEFT, which freezes everything else
IGNORE = -100  # the label of tokens that do not count
STATISTICS_ELEMENTS = 2**26  # log-probabilities held at a time to compute entropies


def convert(model: Any, n_components: int = 4) -> Any:
    """Replace the output layer of `model` by a mixture with exactly the same log-probabilities, and return the model.

    In training, `model(..., labels=labels)` returns the loss and no logits. Otherwise `logits` holds the mixture's
    log-probabilities, which `generate` and other users of logits accept.

    >>> model = convert(AutoModelForCausalLM.from_pretrained("gpt2"), n_components=4)  # doctest: +SKIP
    """
    _check_supported(model)
    try:
        head = MoSHead.from_linear(model.get_output_embeddings(), n_components)
    except TypeError:
        raise UserError(
            f"the output layer of {type(model).__name__} is quantised or has an adapter: load the model with a plain "
            "linear output layer, convert it, and then add adapters."
        ) from None
    copies: dict[int, Any] = {}  # of the configuration and its parts (text_config, ...), by the id of the original
    copy.deepcopy(model.config, copies)  # other models may have been made from the same object
    for module in model.modules():
        if id(getattr(module, "config", None)) in copies:
            module.config = copies[id(module.config)]
    model.__class__, model.config.__class__ = _mixture_classes(type(model), type(model.config))  # type: ignore[arg-type]
    # Not called "model_type": transformers takes a nested configuration with that key for the whole one.
    model.config.highrank = {"base_model_type": model.config.model_type, "n_components": n_components}
    # Save the weights by the names that our class reads: transformers would use those of the original files (Pythia).
    vars(model).pop("_weight_conversions", None)
    model.set_output_embeddings(head)
    return model


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass
class MixtureOutput(ModelOutput):
    """The result of a training step; the fields after `attentions` are filled for TRL only (`fused_lm_head=True`)."""

    loss: Tensor | None = None
    logits: Tensor | None = None  # never built
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    log_probs: Tensor | None = None  # (B, T - 1) of each label, 0 where it does not count
    entropy: Tensor | None = None
    log_sum_sq_probs: Tensor | None = None
    mean_logits: Tensor | None = None  # mean log-probability of the vocabulary: a mixture has no logits
    is_top1: Tensor | None = None  # whether the label is the most likely token
    label_mask: Tensor | None = None  # whether the label counts
    aux_loss: Tensor | None = None


class Mixture(nn.Module):
    """The methods that a converted model adds to its original class, such as `LlamaForCausalLM`."""

    config: Any
    base_model: nn.Module
    get_output_embeddings: Any

    @can_return_tuple
    def forward_with_loss(
        self,
        input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,  # labels that are already shifted
        num_items_in_batch: Tensor | int | None = None,  # tokens over all steps of gradient accumulation
        fused_lm_head: bool = False,
        logits_to_keep: Any = None,  # no effect: no logits are built
        **kwargs: Any,
    ) -> MixtureOutput:
        """Return the mean loss of the labels, or its share of a larger batch, without building logits."""
        body = self.base_model(input_ids, **kwargs)
        if body.get("router_logits") is not None:
            raise UserError("converted models do not add the router loss: set output_router_logits to False.")
        h = body.last_hidden_state
        if shift_labels is None:
            assert labels is not None
            h = h[:, :-1]
            shift_labels = labels[:, 1:]
        targets = shift_labels.to(h.device)
        counts = targets != IGNORE
        h = h[counts]  # (M, D)
        targets = targets[counts]  # (M,)
        head = self.get_output_embeddings()
        self._warn_if_frozen(head)
        nll = head(h, targets)
        loss = nll.sum() / (len(nll) if num_items_in_batch is None else num_items_in_batch)
        output = MixtureOutput(loss, hidden_states=body.get("hidden_states"), attentions=body.get("attentions"))
        if fused_lm_head:
            per_token = {"log_probs": -nll, **_statistics(head, h, targets)}
            for name, values in per_token.items():
                output[name] = values.new_zeros(counts.shape).masked_scatter(counts, values)
            output.label_mask = counts
        return output

    def _get_name(self) -> str:
        """Return the original name, by which `Trainer` knows to shift the labels for label smoothing."""
        return type(self).__name__.removeprefix("Mixture")

    def _warn_if_frozen(self, head: Any) -> None:
        """Warn once if nothing can separate the components: U is zero and not trained."""
        if head.shift.weight.requires_grad or getattr(self, "_checked_frozen", False):
            return
        self._checked_frozen = True
        if not head.shift.weight.any():
            warnings.warn(
                "the mixture is frozen where it equals the softmax: with PEFT, train it with "
                "modules_to_save=highrank.hf.MIXTURE_MODULES.",
                stacklevel=2,
            )

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> Any:
        """Return the input embeddings. A new size is an error: transformers can only resize a plain output layer."""
        embeddings: Any = self.base_model.get_input_embeddings()  # type: ignore[operator]
        if new_num_tokens not in (None, embeddings.num_embeddings):
            raise UserError("a converted model has a fixed vocabulary: resize it first, and convert it then.")
        return embeddings

    def __setattr__(self, name: str, value: Any) -> None:
        # TRL (`SFTTrainer`) and Liger replace `forward` by one that multiplies by lm_head.weight: without the mixture.
        if name == "forward" and hasattr(value, "__func__"):
            function = value.__func__
            if "fused_lm_head" in inspect.signature(function, follow_wrapped=False).parameters:
                if inspect.getclosurevars(function).nonlocals.get("temperature", 1.0) != 1.0:
                    raise UserError("a mixture has no logits to divide by a temperature: set the temperature to 1.")
                return  # our own forward accepts fused_lm_head=True
            if function.__module__.startswith("liger_kernel"):
                raise UserError("Liger's loss would ignore the mixture: set fused_linear_cross_entropy to False.")
        super().__setattr__(name, value)


def _statistics(head: Head, h: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return what TRL's trainers read about every prediction, (M,) each. Only the entropy has a gradient, as in TRL."""
    rows = max(1, STATISTICS_ELEMENTS // head.vocab_size)
    slabs = [
        checkpoint(_slab_statistics, head, *slab, use_reentrant=False)  # recomputed if the entropy is in the loss
        for slab in zip(h.split(rows), targets.split(rows), strict=True)
    ]
    return {name: torch.cat([slab[name] for slab in slabs]) for name in slabs[0]}


def _slab_statistics(head: Head, h: Tensor, targets: Tensor) -> dict[str, Tensor]:
    log_p = head(h)
    constant = log_p.detach()
    return {
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "log_sum_sq_probs": (2 * constant).logsumexp(-1),
        "mean_logits": constant.mean(-1),
        "is_top1": constant.argmax(-1) == targets,
    }


# --- classes, made once for every class of transformers that is converted --------------------------------------------


@functools.cache
def _mixture_classes(model_class: Any, config_class: Any) -> tuple[Any, Any]:
    """Return the subclasses that a converted model and its configuration have, known to `AutoModelForCausalLM`."""

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        model_class.__init__(self, config, *args, **kwargs)
        head = MoSHead.from_linear(self.get_output_embeddings(), config.highrank["n_components"])
        self.set_output_embeddings(head)

    names = list(inspect.signature(model_class.forward).parameters)[1:]  # without self

    @functools.wraps(model_class.forward)  # Trainer and generate read the names of its arguments
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs |= dict(zip(names, args, strict=False))
        has_labels = kwargs.get("labels") is not None or kwargs.get("shift_labels") is not None
        if has_labels and (self.training or kwargs.get("fused_lm_head")):
            return self.forward_with_loss(**kwargs)
        return model_class.forward(self, **kwargs)

    body = {"__module__": __name__}
    mixture_config = type(f"Mixture{config_class.__name__}", (SavedAsMixture, config_class), body)
    mixture = type(
        f"Mixture{model_class.__name__}",
        (Mixture, model_class),
        body | {"__init__": __init__, "forward": forward, "config_class": mixture_config},
    )
    AutoModelForCausalLM.register(mixture_config, mixture)
    return mixture, mixture_config


def __getattr__(name: str) -> Any:
    """Return the class of a converted model or its configuration by name, as pickle looks it up."""
    base = getattr(transformers, name.removeprefix("Mixture"), None) if name.startswith("Mixture") else None
    if base is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    if issubclass(base, PreTrainedConfig):
        return _mixture_classes(MODEL_FOR_CAUSAL_LM_MAPPING[base], base)[1]
    return _mixture_classes(base, base.config_class)[0]


class SavedAsMixture:
    """Writes config.json of a converted model. In memory, the configuration keeps its model type, such as "llama"."""

    auto_map: ClassVar[dict[str, str]] = {}  # no code on the hub; TRL reads it

    def to_json_file(self: Any, json_file_path: str | Path, use_diff: bool = True) -> None:
        data = json.loads(self.to_json_string(use_diff)) | {"model_type": MODEL_TYPE}
        Path(json_file_path).write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")


class MixtureConfig(PreTrainedConfig):
    """Reads config.json of a converted model."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Return a configuration of the class that was converted, a subclass of `LlamaConfig` for example."""
        model_type = config_dict["highrank"]["base_model_type"]
        config_class: Any = CONFIG_MAPPING[model_type]
        _, mixture_config = _mixture_classes(MODEL_FOR_CAUSAL_LM_MAPPING[config_class], config_class)
        return mixture_config.from_dict(config_dict | {"model_type": model_type}, **kwargs)


AutoConfig.register(MODEL_TYPE, MixtureConfig, exist_ok=True)


# --- checks ---------------------------------------------------------------------------------------------------------


def _check_supported(model: Any) -> None:
    """Raise a UserError unless the model's logits are a plain linear layer of its last hidden states."""
    name = type(model).__name__
    if isinstance(model, Mixture):
        raise UserError(f"{name} is converted already.")
    config_class: Any = type(getattr(model, "config", None))
    if type(model) is not MODEL_FOR_CAUSAL_LM_MAPPING.get(config_class, None):
        raise UserError(
            f"{name} is not a Hugging Face causal language model: convert one that AutoModelForCausalLM has loaded, "
            "before adapters are added to it."
        )
    if model.get_output_embeddings() is None:
        raise UserError(f"{name} has no linear output layer to replace: choose another model.")
    if not has_plain_logits(model):
        raise UserError(
            f"{name} changes its last hidden states or its logits around the output layer (for example by soft-capping "
            "or scaling them), which a mixture cannot do exactly: choose another model, or turn that off in its config."
        )
