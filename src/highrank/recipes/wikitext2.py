"""WikiText-2 recipes (tables 2 and 5 of the paper, its appendix B.1); `penn.py` explains where the values come from."""

from highrank.recipes import variants
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

WT2_MOC = variants.moc(WT2_MOS, PaperResult(68.76, 65.98, "table 5"))
WT2_MOS_PLUS = variants.plus(WT2_MOS)

# 29,027,478 parameters.
WT2_SOFTMAX_MOS_HPARAMS = variants.softmax_with_mos_hparams(WT2_MOS, PaperResult(72.73, 69.18, "table 5"))

# 36,639,278 parameters. Published: 58.03 on test.
WT2_DOC = variants.doc(WT2_MOS)

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

CACHE = CacheSettings(window=3785, theta=0.662, lamb=0.1279)  # Merity et al.'s released command
DYNAMIC = DynamicSettings(lr=0.002, lamb=0.02, epsilon=0.002)

RECIPES = (WT2_SOFTMAX, WT2_MOC, WT2_MOS, WT2_SOFTMAX_MOS_HPARAMS, WT2_MOS_PLUS, WT2_DOC)
