"""Recipes for your own text: `small` for two CPU cores, `medium` for a GPU. Set data.corpus to its folder.

The small ones are those of `pydoc.py`, with epochs that do not depend on the length of the text. The medium ones have
the models of Penn Treebank, a text of a million words (`penn.py`), and the training of `ptb-mos-plus`, which was 1.2
ahead of `ptb-mos` after 100 epochs (validation perplexity, one run each; not measured for the other heads).
"""

from dataclasses import replace

from highrank.recipes import penn, pydoc
from highrank.recipes.recipe import DataSpec, Recipe
from highrank.recipes.variants import plus


def _small(recipe: Recipe, name: str, about: str) -> Recipe:
    # 200 updates of 16 x 35 words are about one pass over the text of pydoc. So a run of two minutes has weights to
    # evaluate, however long the text is. Training ends when validation stops improving.
    train = replace(recipe.train, updates_per_epoch=200, max_epochs=1000)
    return replace(recipe, name=name, about=about, data=DataSpec(""), train=train)


def _medium(recipe: Recipe, name: str, about: str) -> Recipe:
    return replace(plus(recipe), name=name, about=about, data=DataSpec(""))


RECIPES = (
    _small(pydoc.PYDOC_SOFTMAX, "small-softmax", "for a CPU: a small AWD-LSTM with a softmax"),
    _small(pydoc.PYDOC_MOC, "small-moc", "for a CPU: the same parameters, a mixture of 4 contexts"),
    _small(pydoc.PYDOC_MOS, "small-mos", "for a CPU: the same parameters, a mixture of 4 softmaxes"),
    _medium(penn.PTB_SOFTMAX, "medium-softmax", "for a GPU: the paper's AWD-LSTM for Penn Treebank"),
    _medium(penn.PTB_MOC, "medium-moc", "for a GPU: the paper's mixture of 15 contexts"),
    _medium(penn.PTB_MOS, "medium-mos", "for a GPU: the paper's mixture of 15 softmaxes"),
)
