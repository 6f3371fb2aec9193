"""Hidden state -> distribution over words: the Softmax, Mixture-of-Contexts, Mixture-of-Softmaxes and DOC heads."""

from highrank.heads.doc import DOCHead
from highrank.heads.head import Head
from highrank.heads.moc import MoCHead
from highrank.heads.mos import MoSHead
from highrank.heads.softmax import SoftmaxHead

__all__ = ["DOCHead", "Head", "MoCHead", "MoSHead", "SoftmaxHead"]
