"""Small recipes for the corpus that every Python carries; ours, not the paper's. `highrank quickstart` trains them.

All three have nearly the same number of parameters (the quickstart prints them) at the same embedding size. The
mixtures spend theirs on K context vectors, the softmax on wider LSTM layers.
"""

from dataclasses import replace

from highrank.recipes.recipe import ModelSpec, Recipe, TrainSpec

PYDOC_MOS = Recipe(
    name="pydoc-mos",
    about="a small AWD-LSTM with a mixture of 5 softmaxes, minutes on a CPU",
    corpus="pydoc",
    model=ModelSpec(
        head="mos",
        embed_dim=64,
        hidden_sizes=(128, 128),
        n_components=5,
        dropout_words=0.05,
        dropout_input=0.2,
        dropout_hidden=0.1,
        dropout_output=0.2,
        dropout_latent=0.1,
        weight_drop=0.2,
    ),
    train=TrainSpec(
        lr=15.0, batch_size=16, seed=1, bptt=35, max_over_bptt=20, alpha=1.0, beta=0.5, max_epochs=40, finetunes=0
    ),
)

PYDOC_MOC = replace(
    PYDOC_MOS,
    name="pydoc-moc",
    about="the same parameters, mixed before the softmax",
    model=replace(PYDOC_MOS.model, head="moc"),
)

PYDOC_SOFTMAX = replace(
    PYDOC_MOS,
    name="pydoc-softmax",
    about="a softmax with the same embedding size and nearly the same number of parameters",
    model=replace(PYDOC_MOS.model, head="softmax", n_components=1, dropout_latent=0.0, hidden_sizes=(176, 64)),
)

RECIPES = (PYDOC_SOFTMAX, PYDOC_MOC, PYDOC_MOS)
