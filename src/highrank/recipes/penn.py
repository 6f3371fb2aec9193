"""Penn Treebank recipes (tables 1 and 5 of the paper, its appendix B.1).

The appendix's hyper-parameter table swaps some of the PTB and WT2 columns; the values here are those of the released
commands, which produced the published numbers (github.com/zihangdai/mos).

    # differs from the paper: window lengths are rounded to multiples of 5, so that few CUDA graphs are needed
    # (train.window_multiple=1 restores all lengths).
"""

from dataclasses import replace

from highrank.recipes.recipe import CacheSettings, DataSpec, DynamicSettings, ModelSpec, PaperResult, Recipe, TrainSpec

# 21,500,620 parameters: embedding 10,000 x 280 (tied) + output bias 10,000
# + LSTMs 4 x (960 x (280 + 960) + 2 x 960) + 4 x (960 x (960 + 960) + 2 x 960) + 4 x (620 x (960 + 620) + 2 x 620)
# + latent 620 x 4,200 + 4,200 + prior 620 x 15.
PTB_MOS = Recipe(
    name="ptb-mos",
    about="the paper's PTB model: AWD-LSTM with a mixture of 15 softmaxes",
    data=DataSpec("penn"),
    model=ModelSpec(
        head="mos",
        embed_dim=280,
        hidden_sizes=(960, 960, 620),
        n_components=15,
        dropout_words=0.1,
        dropout_input=0.4,
        dropout_hidden=0.225,
        dropout_output=0.4,
        dropout_latent=0.29,
        weight_drop=0.5,
    ),
    train=TrainSpec(lr=20.0, finetune_lr=25.0, batch_size=12, seed=28, max_over_bptt=40, window_multiple=5),
    paper=(
        PaperResult(58.08, 55.97, "table 1"),
        PaperResult(56.54, 54.44, "table 1", finetuned=True),
    ),
)

# Ours, so there is no result of the paper to compare with. docs/recipes.md explains each change.
PTB_MOS_PLUS = replace(
    PTB_MOS,
    name="ptb-mos-plus",
    about="ours: ptb-mos with PartialShuffle, two-tailed averaging and three finetunings",
    train=replace(PTB_MOS.train, partial_shuffle=True, averaging="two-tailed", finetunes=3),
    paper=(),
)

# Takase et al. 2018, "Direct Output Connection for a High-Rank Language Model". The values are those of the released
# commands (github.com/nttcslab-nlp/doc_lm); where they do not differ from ptb-mos, they are not repeated here.
# 22,849,120 parameters: those of ptb-mos + latent 960 x 1,400 + 1,400 + prior 620 x 5. Published: 52.38 on test.
PTB_DOC = replace(
    PTB_MOS,
    name="ptb-doc",
    about="DOC: 15 softmaxes from the last layer and 5 from the second",
    model=replace(PTB_MOS.model, n_components=20, lower_components=(5,), dropout_latent=0.6, shared_latent_mask=True),
    train=replace(
        PTB_MOS.train,
        finetune_lr=None,
        nonmono=60,
        patience=60,  # ours; the released first stage always runs its 500 epochs
        max_epochs=500,
        finetune_max_epochs=500,
        load_penalty=0.001,  # differs from the released code, whose penalty has another factor of K - 1 = 19
    ),
    paper=(),
)

PTB_MOC = replace(
    PTB_MOS,
    name="ptb-moc",
    about="ablation: the same parameters, mixed before the softmax",
    model=replace(PTB_MOS.model, head="moc"),
    paper=(PaperResult(59.82, 57.55, "table 5"),),
)

# 24,221,600 parameters: embedding 10,000 x 400 (tied) + output bias + LSTMs 400-1150-1150-400.
# Merity et al.'s released command for PTB (github.com/salesforce/awd-lstm-lm): lr 30, batch 20, dropouti .4,
# dropouth .25, seed 141, 500 epochs; finetuning at the same rate.
PTB_SOFTMAX = Recipe(
    name="ptb-softmax",
    about="baseline: AWD-LSTM with its own hyper-parameters (Merity et al. 2017)",
    data=DataSpec("penn"),
    model=ModelSpec(
        head="softmax",
        embed_dim=400,
        hidden_sizes=(1150, 1150, 400),
        dropout_words=0.1,
        dropout_input=0.4,
        dropout_hidden=0.25,
        dropout_output=0.4,
        weight_drop=0.5,
    ),
    train=TrainSpec(lr=30.0, batch_size=20, seed=141, max_epochs=500, max_over_bptt=40, window_multiple=5),
    paper=(PaperResult(61.49, 58.95, "table 5"),),
)

# The paper does not print this baseline's sizes. Tied embeddings need a last layer of the embedding size, so we keep
# MoS's 280 and 960, with 280 units in the last layer (16,350,800 parameters).
PTB_SOFTMAX_MOS_HPARAMS = replace(
    PTB_MOS,
    name="ptb-softmax-mos-hparams",
    about="ablation: a softmax trained with the hyper-parameters of ptb-mos",
    model=replace(PTB_MOS.model, head="softmax", n_components=1, dropout_latent=0.0, hidden_sizes=(960, 960, 280)),
    paper=(PaperResult(78.86, 74.86, "table 5"),),
)

CACHE = CacheSettings(window=500, theta=1.0, lamb=0.1)  # Merity et al.'s released command
DYNAMIC = DynamicSettings(lr=0.002, lamb=0.075, epsilon=0.001)

RECIPES = (PTB_SOFTMAX, PTB_MOC, PTB_MOS, PTB_SOFTMAX_MOS_HPARAMS, PTB_MOS_PLUS, PTB_DOC)
