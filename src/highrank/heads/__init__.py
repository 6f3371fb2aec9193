"""Hidden state -> distribution over words: the Softmax, Mixture-of-Contexts and Mixture-of-Softmaxes heads."""

from highrank.heads.head import Head
from highrank.heads.moc import MoCHead
from highrank.heads.mos import MoSHead
from highrank.heads.softmax import SoftmaxHead

__all__ = ["Head", "MoCHead", "MoSHead", "SoftmaxHead"]
