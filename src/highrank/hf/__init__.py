"""Hugging Face `transformers`: give any causal language model a mixture of softmaxes, and use our models there.

    model = highrank.hf.convert(AutoModelForCausalLM.from_pretrained("gpt2"), n_components=4)
    model.save_pretrained("mixture")

Importing this package teaches `AutoModelForCausalLM.from_pretrained` to load converted models and exported runs.

mixture.py           `convert`, and the classes of converted models
language_model.py    runs of this package as Hugging Face models, with a tokenizer
pretrained.py        loads any Hugging Face model, for analysis and the explorer
uptrain.py           trains a pretrained model with a mixture or with its softmax
lm_eval.py           lm-eval with these models registered
"""

from highrank.errors import MissingPackageError

try:
    import transformers  # noqa: F401
except ImportError:
    raise MissingPackageError("transformers", "hf") from None

from highrank.hf.language_model import HighrankConfig, HighrankForCausalLM
from highrank.hf.mixture import MIXTURE_MODULES, convert

__all__ = ["MIXTURE_MODULES", "HighrankConfig", "HighrankForCausalLM", "convert"]
