"""Dialog recipes for Switchboard (section 3.1 and table 4 of the paper).

The paper gives no sizes for its Seq2Seq models, only that their parameters are comparable. The sizes here start from
those of Zhao et al. (2017), whose preprocessing of the corpus the paper uses: embedding 200, bidirectional utterance
encoder 300, decoder 400 (config_utils.py of github.com/snakeztc/NeuralDialog-CVAE). Ours are the attention size, which
equals the decoder's, the number of components and the dropouts; Zhao et al. use no dropout. They train with Adam at a
learning rate of 0.001, batches of 30 and gradients clipped at 5, for at most 60 epochs.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class DialogDataSpec:
    """A folder with train.jsonl, valid.jsonl and test.jsonl, and how to read it (`highrank.data.dialog`)."""

    corpus: str
    vocab_size: int = 10_000  # Zhao et al.; here the special words count too
    context_size: int = 9  # utterances; Zhao et al.: a window of 10 with the response
    max_words: int = 38  # per utterance; Zhao et al.: 40 with the start and end tokens


@dataclass(frozen=True)
class Seq2SeqSpec:
    """Sizes and dropouts of `highrank.models.seq2seq`."""

    head: Literal["softmax", "moc", "mos"]
    embed_dim: int  # D, of the one embedding that encoder, decoder and head share
    encoder_size: int  # per direction
    decoder_size: int
    attention_size: int  # of g; a softmax head needs it equal to embed_dim
    n_components: int = 1  # K
    dropout_input: float = 0.0  # variational, on the embedded words
    dropout_output: float = 0.0  # variational, on g
    dropout_latent: float = 0.0  # variational, on the context vectors h


@dataclass(frozen=True)
class DecodingSpec:
    """How responses are generated for BLEU. The first three values are the paper's (section 3.1)."""

    beam_size: int = 10
    n_best: int = 5
    max_length: int = 30  # words
    length_penalty: float = 0.0  # as in `highrank.evaluation.beam`; the paper mentions none


@dataclass(frozen=True)
class PaperDialogResult:
    """A row of table 4: perplexity, and BLEU-1 to BLEU-4."""

    perplexity: float
    precision: tuple[float, float, float, float]
    recall: tuple[float, float, float, float]


@dataclass(frozen=True)
class DialogRecipe:
    name: str
    about: str
    data: DialogDataSpec
    model: Seq2SeqSpec
    paper: PaperDialogResult
    decoding: DecodingSpec = DecodingSpec()


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
