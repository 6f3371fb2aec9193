"""Character recipes for text8 (the inverse experiment in the paper's appendix, its table 12).

With 27 characters, the log-probabilities have a rank of at most 27, far below the embedding size. A softmax is not
limited here, and the paper expects, and finds, no gain from a mixture. docs/characters.md has what we found.

The sizes are the paper's. Tied embeddings, an output bias, two biases per LSTM gate and a bias of the context vectors
give the parameter counts that it prints, except for MoS-7 with 750 units: its two large matrices alone,
4 x 750 x 1,500 + 750 x 5,250, have 20,000 entries more than those of MoS-7 with 910 units, so no such model has the
8.45M printed for both (749 units would). We keep the sizes.

The paper gives no training settings; all of them are ours.
"""

from dataclasses import replace

from highrank.recipes.recipe import DataSpec, ModelSpec, PaperResult, Recipe, TrainSpec

# 8,424,475 parameters: embedding 27 x 1,024 (tied) + output bias 27 + LSTM 4 x (1,024 x (1,024 + 1,024) + 2 x 1,024).
TEXT8_SOFTMAX = Recipe(
    name="text8-softmax",
    about="baseline: one LSTM layer of 1,024 units and a softmax",
    data=DataSpec("text8", level="char"),
    model=ModelSpec(
        head="softmax",
        embed_dim=1024,
        hidden_sizes=(1024,),
        # A little dropout, for those who train on a prefix: it may have as few characters as the model has parameters.
        dropout_output=0.1,
        weight_drop=0.2,  # as in Merity et al.'s released command for the characters of enwik8
    ),
    train=TrainSpec(
        # Validation on the prefix, in bits per character, at learning rates of 0.0005 / 0.001: softmax 1.710 / 1.678
        # and MoS-7 1.701 / 1.664 after 11 epochs (results/benchmarks/text8_adam_h200.csv); softmax 1.641 / 1.635 after
        # 43 (results/runs/text8-softmax*-1440s-h200.json).
        lr=0.001,
        optimizer="adam",  # with batches of 128 and windows of 200, as Merity et al. for enwik8
        batch_size=128,
        bptt=200,
        max_over_bptt=20,
        window_multiple=10,  # few CUDA graphs
        seed=1,
        alpha=0.0,  # neither AR nor TAR, as Merity et al. for enwik8
        beta=0.0,
        averaging="two-tailed",  # needs no schedule, so runs of any length can be compared
        patience=5,
        max_epochs=100,
        finetunes=0,
        eval_batch_size=64,  # validation is long, and a cold start costs a few characters
    ),
    paper=(PaperResult(train=1.35, valid=1.41, test=1.49, table="table 12"),),
)

# 8,448,517 parameters: embedding 27 x 510 + 27 + LSTM 4 x (910 x (510 + 910) + 2 x 910)
# + latent 910 x 3,570 + 3,570 + prior 910 x 7.
TEXT8_MOS7 = replace(
    TEXT8_SOFTMAX,
    name="text8-mos7",
    about="a mixture of 7 softmaxes, hidden size above the embedding's",
    model=replace(TEXT8_SOFTMAX.model, head="mos", n_components=7, embed_dim=510, hidden_sizes=(910,)),
    paper=(PaperResult(train=1.35, valid=1.40, test=1.49, table="table 12"),),
)

# 8,474,277 parameters: embedding 27 x 750 + 27 + LSTM 4 x (750 x (750 + 750) + 2 x 750)
# + latent 750 x 5,250 + 5,250 + prior 750 x 7.
TEXT8_MOS7_EQUAL = replace(
    TEXT8_MOS7,
    name="text8-mos7-equal",
    about="a mixture of 7 softmaxes, equal hidden and embedding sizes",
    model=replace(TEXT8_MOS7.model, embed_dim=750, hidden_sizes=(750,)),
    paper=(PaperResult(train=1.38, valid=1.42, test=1.50, table="table 12"),),
)

# 8,432,711 parameters: embedding 27 x 452 + 27 + LSTM 4 x (860 x (452 + 860) + 2 x 860)
# + latent 860 x 4,520 + 4,520 + prior 860 x 10.
TEXT8_MOS10 = replace(
    TEXT8_MOS7,
    name="text8-mos10",
    about="a mixture of 10 softmaxes, hidden size above the embedding's",
    model=replace(TEXT8_MOS7.model, n_components=10, embed_dim=452, hidden_sizes=(860,)),
    paper=(PaperResult(train=1.35, valid=1.41, test=1.49, table="table 12"),),
)

# 8,434,394 parameters: embedding 27 x 683 + 27 + LSTM 4 x (683 x (683 + 683) + 2 x 683)
# + latent 683 x 6,830 + 6,830 + prior 683 x 10.
TEXT8_MOS10_EQUAL = replace(
    TEXT8_MOS10,
    name="text8-mos10-equal",
    about="a mixture of 10 softmaxes, equal hidden and embedding sizes",
    model=replace(TEXT8_MOS10.model, embed_dim=683, hidden_sizes=(683,)),
    paper=(PaperResult(train=1.38, valid=1.42, test=1.50, table="table 12"),),
)

RECIPES = (TEXT8_SOFTMAX, TEXT8_MOS7, TEXT8_MOS7_EQUAL, TEXT8_MOS10, TEXT8_MOS10_EQUAL)
