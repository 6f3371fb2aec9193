"""Word ids -> hidden states -> loss: the AWD-LSTM backbone, and language models made of a backbone and a head."""

from highrank.models.awd_lstm import AWDLSTM
from highrank.models.language_model import LanguageModel, build_model

__all__ = ["AWDLSTM", "LanguageModel", "build_model"]
