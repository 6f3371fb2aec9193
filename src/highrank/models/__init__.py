"""ids -> hidden states g, and the language model that puts a head on them."""

from highrank.models.awd_lstm import AWDLSTM
from highrank.models.language_model import LanguageModel

__all__ = ["AWDLSTM", "LanguageModel"]
