"""WikiText-2 recipes (tables 2 and 5 of the paper, its appendix B.1); `penn.py` explains where the values come from."""

from dataclasses import replace

from highrank.recipes.recipe import CacheSettings, DataSpec, DynamicSettings, ModelSpec, PaperResult, Recipe, TrainSpec

# 34,909,528 parameters: embedding 33,278 x 300 (tied) + output bias + LSTMs 300-1150-1150-650
# + latent 650 x 4,500 + 4,500 + prior 650 x 15.
WT2_MOS = Recipe(
    name="wt2-mos",
    about="the paper's WikiText-2 model: AWD-LSTM with a mixture of 15 softmaxes",
    data=DataSpec("wikitext-2"),
    model=ModelSpec(
        head="mos",
        embed_dim=300,
        hidden_sizes=(1150, 1150, 650),
        n_components=15,
        dropout_words=0.1,
        dropout_input=0.55,
        dropout_hidden=0.2,
        dropout_output=0.4,
        dropout_latent=0.29,
        weight_drop=0.5,
    ),
    # differs from the released one-GPU command, which splits the batch into three of 5 columns to save memory. The
    # gradient is the same except for the dropout masks, which each part of a split batch draws for itself.
    train=TrainSpec(lr=15.0, finetune_lr=20.0, batch_size=15, seed=1882, max_over_bptt=20, window_multiple=5),
    paper=(
        PaperResult(66.01, 63.33, "table 2"),
        PaperResult(63.88, 61.45, "table 2", finetuned=True),
    ),
)

# Ours, like ptb-mos-plus.
WT2_MOS_PLUS = replace(
    WT2_MOS,
    name="wt2-mos-plus",
    about="ours: wt2-mos with PartialShuffle, two-tailed averaging and three finetunings",
    train=replace(WT2_MOS.train, partial_shuffle=True, averaging="two-tailed", finetunes=3),
    paper=(),
)

# Like ptb-doc, with a learning rate of 15 in both stages. 36,639,278 parameters. Published: 58.03 on test.
WT2_DOC = replace(
    WT2_MOS,
    name="wt2-doc",
    about="DOC: 15 softmaxes from the last layer and 5 from the second",
    model=replace(WT2_MOS.model, n_components=20, lower_components=(5,), dropout_latent=0.6, shared_latent_mask=True),
    train=replace(
        WT2_MOS.train,
        finetune_lr=None,
        nonmono=60,
        patience=60,
        max_epochs=500,
        finetune_max_epochs=500,
        load_penalty=0.001,
    ),
    paper=(),
)

WT2_MOC = replace(
    WT2_MOS,
    name="wt2-moc",
    about="ablation: the same parameters, mixed before the softmax",
    model=replace(WT2_MOS.model, head="moc"),
    paper=(PaperResult(68.76, 65.98, "table 5"),),
)

# 33,556,078 parameters. Merity et al.'s released command for WT2: lr 30, batch 80, dropouti .65 (the default),
# dropouth .2, seed 1882, 750 epochs.
WT2_SOFTMAX = Recipe(
    name="wt2-softmax",
    about="baseline: AWD-LSTM with its own hyper-parameters (Merity et al. 2017)",
    data=DataSpec("wikitext-2"),
    model=ModelSpec(
        head="softmax",
        embed_dim=400,
        hidden_sizes=(1150, 1150, 400),
        dropout_words=0.1,
        dropout_input=0.65,
        dropout_hidden=0.2,
        dropout_output=0.4,
        weight_drop=0.5,
    ),
    train=TrainSpec(lr=30.0, batch_size=80, seed=1882, max_epochs=750, max_over_bptt=20, window_multiple=5),
    paper=(PaperResult(68.73, 65.40, "table 5"),),
)

# Sizes as in ptb-softmax-mos-hparams: the last layer has the 300 units of the tied embedding.
WT2_SOFTMAX_MOS_HPARAMS = replace(
    WT2_MOS,
    name="wt2-softmax-mos-hparams",
    about="ablation: a softmax trained with the hyper-parameters of wt2-mos",
    model=replace(WT2_MOS.model, head="softmax", n_components=1, dropout_latent=0.0, hidden_sizes=(1150, 1150, 300)),
    paper=(PaperResult(72.73, 69.18, "table 5"),),
)

CACHE = CacheSettings(window=3785, theta=0.662, lamb=0.1279)  # Merity et al.'s released command
DYNAMIC = DynamicSettings(lr=0.002, lamb=0.02, epsilon=0.002)

RECIPES = (WT2_SOFTMAX, WT2_MOC, WT2_MOS, WT2_SOFTMAX_MOS_HPARAMS, WT2_MOS_PLUS, WT2_DOC)
