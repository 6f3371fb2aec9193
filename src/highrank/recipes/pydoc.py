"""Small recipes for the documentation that comes with Python; ours, not the paper's.

All three have the same number of parameters to within a quarter of a percent, at the same embedding size and with two
non-linear layers under the output embedding: two LSTM layers for the softmax (whose last must be of the embedding's
size), one wider LSTM layer and the tanh of the context vectors for the mixtures.
"""

from dataclasses import replace

from highrank.recipes.recipe import DataSpec, ModelSpec, Recipe, TrainSpec

PYDOC_MOS = Recipe(
    name="pydoc-mos",
    about="a small AWD-LSTM with a mixture of 4 softmaxes, minutes on a CPU",
    data=DataSpec("pydoc"),
    model=ModelSpec(
        head="mos",
        embed_dim=48,
        hidden_sizes=(144,),
        n_components=4,
        dropout_words=0.05,
        dropout_input=0.2,
        dropout_hidden=0.1,
        dropout_output=0.2,
        dropout_latent=0.1,
        weight_drop=0.2,
    ),
    train=TrainSpec(
        lr=20.0,
        batch_size=16,
        seed=1,
        bptt=35,
        max_over_bptt=20,
        alpha=1.0,
        beta=0.5,
        averaging="two-tailed",  # good weights whenever a run stops; NT-ASGD would average only after some 16 epochs
        max_epochs=40,
        finetunes=0,
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
    model=replace(PYDOC_MOS.model, head="softmax", n_components=1, dropout_latent=0.0, hidden_sizes=(138, 48)),
)

RECIPES = (PYDOC_SOFTMAX, PYDOC_MOC, PYDOC_MOS)
