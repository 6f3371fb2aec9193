"""Penn Treebank recipes (tables 1 and 5 of the paper, its appendix B.1).

The appendix's hyper-parameter table swaps some of the PTB and WT2 columns; the values here are those of the released
commands, which produced the published numbers (github.com/zihangdai/mos).

    # differs from the paper: window lengths are rounded to multiples of 5, so that few CUDA graphs are needed
    # (train.window_multiple=1 restores all lengths).
"""

from highrank.recipes import variants
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

PTB_MOC = variants.moc(PTB_MOS, PaperResult(59.82, 57.55, "table 5"))
PTB_MOS_PLUS = variants.plus(PTB_MOS)

# 16,350,800 parameters.
PTB_SOFTMAX_MOS_HPARAMS = variants.softmax_with_mos_hparams(PTB_MOS, PaperResult(78.86, 74.86, "table 5"))

# 22,849,120 parameters: those of ptb-mos + latent 960 x 1,400 + 1,400 + prior 620 x 5. Published: 52.38 on test.
PTB_DOC = variants.doc(PTB_MOS)

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

CACHE = CacheSettings(window=500, theta=1.0, lamb=0.1)  # Merity et al.'s released command
DYNAMIC = DynamicSettings(lr=0.002, lamb=0.075, epsilon=0.001)

RECIPES = (PTB_SOFTMAX, PTB_MOC, PTB_MOS, PTB_SOFTMAX_MOS_HPARAMS, PTB_MOS_PLUS, PTB_DOC)
