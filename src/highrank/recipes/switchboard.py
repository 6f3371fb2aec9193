"""Dialog recipes for Switchboard (section 3.1 and table 4 of the paper).

The paper gives no sizes for its Seq2Seq models, only that their parameters are comparable. The sizes here start from
those of Zhao et al. (2017), whose preprocessing of the corpus the paper uses: embedding 200, bidirectional utterance
encoder 300, decoder 400 (config_utils.py of github.com/snakeztc/NeuralDialog-CVAE). Ours are the attention size, which
equals the decoder's, the number of components and the dropouts; Zhao et al. use no dropout. They train with Adam at a
learning rate of 0.001, batches of 30 and gradients clipped at 5, for at most 60 epochs. Ours are larger batches, which
keep a GPU busy, and averages of the weights.
"""

from dataclasses import replace

from highrank.recipes.dialog import DialogDataSpec, DialogRecipe, PaperDialogResult, Seq2SeqSpec
from highrank.recipes.recipe import ScheduleSpec

# 5,702,200 parameters: embedding 10,000 x 200 (tied) + output bias 10,000
# + encoders 2 x 4 x (300 x (200 + 300) + 2 x 300) + initial state 600 x 800 + 800
# + decoder 4 x (400 x (200 + 400) + 2 x 400) + attention 600 x 400 + (400 + 600) x 400 + 400
# + latent 400 x 1,000 + 1,000 + prior 400 x 5.
SWDA_MOS = DialogRecipe(
    name="swda-mos",
    about="attentive Seq2Seq with a mixture of 5 softmaxes",
    data=DialogDataSpec("switchboard"),
    model=Seq2SeqSpec(
        head="mos",
        embed_dim=200,
        encoder_size=300,
        decoder_size=400,
        attention_size=400,
        n_components=5,
        dropout_input=0.2,
        dropout_output=0.2,
        dropout_latent=0.2,
    ),
    train=ScheduleSpec(
        lr=0.001,
        batch_size=128,
        seed=1,
        optimizer="adam",
        clip=5.0,
        weight_decay=0.0,
        averaging="two-tailed",  # a batch holds responses of one length, so the weights swing from batch to batch
        patience=4,
        max_epochs=60,
        finetunes=0,
        eval_batch_size=128,
    ),
    paper=PaperDialogResult(32.727, (0.272, 0.213, 0.185, 0.157), (0.206, 0.166, 0.146, 0.123)),
)

SWDA_MOC = replace(
    SWDA_MOS,
    name="swda-moc",
    about="the same parameters, mixed before the softmax",
    model=replace(SWDA_MOS.model, head="moc"),
    paper=PaperDialogResult(33.291, (0.259, 0.202, 0.176, 0.148), (0.198, 0.159, 0.140, 0.117)),
)

# 5,699,284 parameters: as above, with a decoder of 494 units in place of the mixture: initial state 600 x 988 + 988
# + decoder 4 x (494 x (200 + 494) + 2 x 494) + attention 600 x 494 + (494 + 600) x 200 + 200.
SWDA_SOFTMAX = replace(
    SWDA_MOS,
    name="swda-softmax",
    about="baseline: a softmax with a larger decoder, and so as many parameters",
    model=replace(
        SWDA_MOS.model, head="softmax", n_components=1, dropout_latent=0.0, decoder_size=494, attention_size=200
    ),
    paper=PaperDialogResult(34.657, (0.249, 0.193, 0.168, 0.141), (0.188, 0.151, 0.133, 0.111)),
)

RECIPES = (SWDA_SOFTMAX, SWDA_MOC, SWDA_MOS)
