"""Mixtures of softmaxes for `transformers`: give a causal language model one, and load it again.

model = highrank.hf.convert(AutoModelForCausalLM.from_pretrained(...), n_components=4)
model.save_pretrained("mixture")
model = AutoModelForCausalLM.from_pretrained("mixture")  # after `import highrank.hf`
"""

from highrank.errors import UserError

try:
    import transformers  # noqa: F401
except ImportError:
    raise UserError("transformers is not installed: install it with pip install 'highrank[hf]'.") from None

from highrank.hf.mixture import MIXTURE_MODULES, convert

__all__ = ["MIXTURE_MODULES", "convert"]
