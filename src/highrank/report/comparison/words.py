"""What every form of a comparison says, and in which order: sentences, notes, and which rows are worth showing."""

from typing import NamedTuple

from highrank.analysis.bands import MIN_STEPS, Group
from highrank.analysis.compare import Comparison, Side, Step
from highrank.analysis.prediction import Component, Prediction

HEADS = {"softmax": "Softmax", "moc": "MoC", "mos": "MoS"}
MOST_PREVIOUS = 10  # previous words shown, in each direction
MOST_COMPONENTS = 4  # of a mixture, the heaviest
COMPONENTS = {
    "mos": "MoS averages its components' distributions, so each is a prediction of its own. Its weight is the prior; "
    "its share is how much of the probability of the word that came is its doing (its weight times its probability, "
    "over the model's).",
    "moc": "MoC mixes context vectors before its one softmax, so it predicts with the normalised geometric mean of its "
    "components. A component alone is not a distribution that the model ever predicts with: shown is what the softmax "
    "would say to that component's context vector by itself. So it has a weight, and no share.",
}


def title(c: Comparison) -> str:
    return f"{c.a.name} against {c.b.name}"


def about(side: Side) -> str:
    components = "" if side.head == "softmax" else f" of {side.n_components}"
    return f"{HEADS[side.head]}{components}, {side.parameters:,} parameters"


def summary(c: Comparison) -> str:
    """The whole in two sentences."""
    steps = f"the {c.tokens:,} steps of {c.split}"
    if c.contains is not None:
        steps = f'the {c.overall.steps:,} steps of {c.split} with "{c.contains}" in their context'
    ahead, behind = (c.a, c.b) if c.overall.gain >= 0 else (c.b, c.a)
    return (
        f"Over {steps}, {ahead.name} gains {abs(c.overall.gain):.4f}{_error(c.overall)} nats a token on {behind.name}. "
        f"{c.a.name} gives the word that came the higher probability at {c.a_better / c.overall.steps:.1%} of them."
    )


def reading_notes(c: Comparison) -> list[str]:
    """How to read it, and what it does not say."""
    notes = [
        f"A gain is the negative log loss of {c.b.name} less that of {c.a.name}, in nats: positive where {c.a.name} is "
        "the better. A gain of g means exp(g) times the probability.",
        "The steps shown are the extremes among many, in both directions: two equally good models would have some, "
        "too. The tables by group tell whether there is more to it.",
        "± is one standard error, with lines as the independent units. Among many rows, about one in twenty lies "
        "beyond two of them by chance.",
    ]
    if c.columns > 1:
        notes.append(
            f"The text was read in {c.columns} columns, each from a zero state, as with evaluate --batch-size."
        )
    return notes


class Grouping(NamedTuple):
    title: str
    explanation: str
    groups: list[Group]
    of_words: bool = False  # the groups' names are words of the text


def groupings(c: Comparison) -> list[Grouping]:
    """The tables by group."""
    return [
        Grouping(
            "How often the word was seen in training", "The word to be predicted, the rarest first.", c.by_frequency
        ),
        Grouping(
            "How often it was seen after the word before it",
            "A pair that training never had leaves only the longer context to go by.",
            c.by_pair,
        ),
        Grouping(
            "The word before",
            f"Of the previous words with at least {MIN_STEPS} steps, those that move the total most, each way.",
            previous_rows(c),
            of_words=True,
        ),
    ]


def previous_rows(c: Comparison) -> list[Group]:
    better = [g for g in c.by_previous if g.gain > 0][:MOST_PREVIOUS]
    worse = [g for g in c.by_previous if g.gain <= 0][-MOST_PREVIOUS:]
    return better + worse


def sections(c: Comparison) -> list[tuple[str, list[Step]]]:
    return [
        (f"Where {c.a.name} is furthest ahead", c.a_ahead),
        (f"Where {c.b.name} is furthest ahead", c.b_ahead),
    ]


def probability(p: float) -> str:
    """0.38, 0.004, 2e-05."""
    return f"{p:.2f}" if p >= 0.0095 else f"{p:.1g}"


def gain_of(group: Group) -> str:
    return f"{group.gain:+.4f}{_error(group)}"


def speaking(prediction: Prediction) -> tuple[list[Component], str]:
    """The components worth showing, the heaviest and the one with the largest share, and a clause about the rest."""
    shown, rest = prediction.components[:MOST_COMPONENTS], prediction.components[MOST_COMPONENTS:]
    main = max(prediction.components, key=lambda c: c.share or 0.0)
    if main.share and main in rest:
        shown, rest = [*shown, main], [c for c in rest if c is not main]
    if not rest:
        return shown, ""
    verb = "has" if len(rest) == 1 else "have"
    return shown, f"{len(rest)} more {verb} {probability(sum(c.weight for c in rest))} of the weight"


def about_components(c: Comparison) -> list[str]:
    """What a component is, for the mixtures at hand."""
    return [COMPONENTS[head] for head in ("mos", "moc") if head in (c.a.head, c.b.head)]


def token(word: str) -> str:
    """A token that can be seen."""
    return "␣" if word == " " else word


def _error(group: Group) -> str:
    return "" if group.gain_se is None else f" ± {group.gain_se:.4f}"
