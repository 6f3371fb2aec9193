"""Recipes for your own text: `small` for two CPU cores, `medium` for a GPU. Set data.corpus to its folder.

The small ones are those of `pydoc.py`, the medium ones those of Penn Treebank, a text of a million words (`penn.py`).
"""

from dataclasses import replace

from highrank.recipes import penn, pydoc
from highrank.recipes.recipe import DataSpec, Recipe


def _for_own_text(recipe: Recipe, name: str, about: str) -> Recipe:
    return replace(recipe, name=name, about=about, data=DataSpec(""), paper=())


RECIPES = (
    _for_own_text(pydoc.PYDOC_SOFTMAX, "small-softmax", "a small AWD-LSTM with a softmax"),
    _for_own_text(pydoc.PYDOC_MOC, "small-moc", "the same parameters, a mixture of 4 contexts"),
    _for_own_text(pydoc.PYDOC_MOS, "small-mos", "the same parameters, a mixture of 4 softmaxes"),
    _for_own_text(penn.PTB_SOFTMAX, "medium-softmax", "the paper's AWD-LSTM for Penn Treebank"),
    _for_own_text(penn.PTB_MOC, "medium-moc", "the paper's mixture of 15 contexts"),
    _for_own_text(penn.PTB_MOS, "medium-mos", "the paper's mixture of 15 softmaxes"),
)
