"""One Billion Word recipes (table 3 of the paper, its appendix B.2).

Sizes, learning rate, batch and window are the paper's; "dropout was not used". Its parameter counts, 119M and 113M, are
those of tied embeddings. The text of the paper does not say how the learning rate changes; a comment in its source says
"SGD with validation based learning rate annealing", without the rule.
"""

from dataclasses import replace

from highrank.recipes.recipe import DataSpec, ModelSpec, PaperResult, Recipe, TrainSpec

# 119,293,600 parameters: embedding 100,000 x 1,024 (tied) + output bias 100,000
# + LSTMs 2 x 4 x (1,024 x (1,024 + 1,024) + 2 x 1,024).
BILLION_SOFTMAX = Recipe(
    name="1b-softmax",
    about="baseline: two LSTM layers of 1,024 units and a softmax",
    data=DataSpec("one-billion-word"),
    model=ModelSpec(head="softmax", embed_dim=1024, hidden_sizes=(1024, 1024)),
    train=TrainSpec(
        lr=20.0,
        batch_size=60,
        bptt=35,
        max_over_bptt=0,
        window_multiple=35,  # every window has 35 words, the last of the text excepted: one CUDA graph
        seed=1,
        alpha=0.0,  # "no explicit regularization technique" (the paper's analysis of table 3)
        beta=0.0,
        weight_decay=0.0,
        averaging="none",
        anneal=4.0,  # ours; the paper does not print a rule
        # One pass is 0.8 billion words, 380,000 updates. The paper's training perplexity is a mean over 4,000 updates.
        updates_per_epoch=4000,
        finetunes=0,
        eval_batch_size=60,  # validation has 300,000 words, so a cold start per column costs little
    ),
    paper=(PaperResult(43.86, 42.77, "table 3", train=41.47),),
)

# 112,850,364 parameters: embedding 100,000 x 900 (tied) + output bias 100,000
# + LSTMs 4 x (1,024 x (900 + 1,024) + 2 x 1,024) + 4 x (1,024 x (1,024 + 1,024) + 2 x 1,024)
# + latent 1,024 x 6,300 + 6,300 + prior 1,024 x 7.
BILLION_MOS = replace(
    BILLION_SOFTMAX,
    name="1b-mos",
    about="a mixture of 7 softmaxes with fewer parameters than the baseline",
    model=ModelSpec(head="mos", embed_dim=900, hidden_sizes=(1024, 1024), n_components=7),
    paper=(PaperResult(38.01, 37.10, "table 3", train=36.39),),
)

RECIPES = (BILLION_SOFTMAX, BILLION_MOS)
