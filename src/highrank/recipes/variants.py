"""Variants of a MoS recipe that several corpora have: two ablations of the paper, ours, and DOC."""

from dataclasses import replace

from highrank.recipes.recipe import PaperResult, Recipe


def moc(mos: Recipe, paper: PaperResult) -> Recipe:
    """Return the ablation with a mixture of contexts."""
    return replace(
        mos,
        name=mos.name.replace("-mos", "-moc"),
        about="ablation: the same parameters, mixed before the softmax",
        model=replace(mos.model, head="moc"),
        paper=(paper,),
    )


def softmax_with_mos_hparams(mos: Recipe, paper: PaperResult) -> Recipe:
    """Return the ablation with a softmax.

    The paper does not print this baseline's sizes. Tied embeddings need a last layer of the embedding size, so we keep
    the embedding and the other layers of MoS, and give the last layer as many units as the embedding has.
    """
    sizes = (*mos.model.hidden_sizes[:-1], mos.model.embed_dim)
    return replace(
        mos,
        name=mos.name.replace("-mos", "-softmax-mos-hparams"),
        about=f"ablation: a softmax trained with the hyper-parameters of {mos.name}",
        model=replace(mos.model, head="softmax", n_components=1, dropout_latent=0.0, hidden_sizes=sizes),
        paper=(paper,),
    )


def plus(mos: Recipe) -> Recipe:
    """Return our own variant, for which the paper has no result. docs/recipes.md explains each change."""
    return replace(
        mos,
        name=f"{mos.name}-plus",
        about=f"ours: {mos.name} with PartialShuffle, two-tailed averaging and three finetunings",
        train=replace(mos.train, partial_shuffle=True, averaging="two-tailed", finetunes=3),
        paper=(),
    )


def doc(mos: Recipe) -> Recipe:
    """Return the model of Takase et al. 2018, "Direct Output Connection for a High-Rank Language Model".

    The values are those of the released commands (github.com/nttcslab-nlp/doc_lm); where they do not differ from MoS,
    they are not repeated here.
    """
    return replace(
        mos,
        name=mos.name.replace("-mos", "-doc"),
        about="DOC: 15 softmaxes from the last layer and 5 from the second",
        model=replace(mos.model, n_components=20, lower_components=(5,), dropout_latent=0.6, shared_latent_mask=True),
        train=replace(
            mos.train,
            finetune_lr=None,  # the learning rate of both stages
            nonmono=60,
            patience=60,  # ours; the released first stage always runs its 500 epochs
            max_epochs=500,
            finetune_max_epochs=500,
            load_penalty=0.001,  # differs from the released code, whose penalty has another factor of K - 1 = 19
        ),
        paper=(),
    )
