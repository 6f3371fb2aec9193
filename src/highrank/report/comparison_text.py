"""The sentences, groupings and number formats that every form of a comparison shares."""

from typing import NamedTuple

from highrank.analysis.compare import ComparedStep, Comparison, Side
from highrank.analysis.groups import MIN_STEPS, Group
from highrank.analysis.prediction import Component, Prediction

HEADS = {"softmax": "Softmax", "moc": "MoC", "mos": "MoS"}
MAX_PREVIOUS = 10  # previous words shown, in each direction
MAX_COMPONENTS = 4  # components shown of a mixture
COMPONENTS = {
    "mos": "MoS averages the distributions of its components, so each component is a prediction of its own. Its weight "
    "is the prior pi; its share is its responsibility: the part of the reference's probability that it contributes.",
    "moc": "MoC mixes context vectors before its one softmax, so it predicts with the normalised geometric mean of its "
    "components. The distribution shown for a component is what the softmax gives for its context vector alone; the "
    "model never predicts with it, so it has a weight but no share.",
}


def title(c: Comparison) -> str:
    return f"{c.a.name} against {c.b.name}"


def describe(side: Side) -> str:
    """Describe a model: 'MoS of 15, 21,500,620 parameters'."""
    components = "" if side.head == "softmax" else f" of {side.n_components}"
    return f"{HEADS[side.head]}{components}, {side.parameters:,} parameters"


def summary(c: Comparison) -> str:
    """Summarise the comparison in two sentences."""
    steps = f"the {c.tokens:,} steps of {c.split}"
    if c.contains is not None:
        steps = f'the {c.overall.steps:,} steps of {c.split} with "{c.contains}" in the context or as the reference'
    ahead, behind = (c.a, c.b) if c.overall.gain >= 0 else (c.b, c.a)
    return (
        f"Over {steps}, {ahead.name} is ahead of {behind.name} by {abs(c.overall.gain):.4f}{_error(c.overall)} nats "
        f"per token. {c.a.name} gives the reference the higher probability at "
        f"{c.a_better / c.overall.steps:.1%} of them."
    )


def notes(c: Comparison) -> list[str]:
    """Explain how to read the numbers."""
    return [
        f"A gain is the negative log-likelihood of {c.b.name} minus that of {c.a.name}, in nats: positive where "
        f"{c.a.name} is better. A gain of g means exp(g) times the probability.",
        "The steps shown are extremes among many, in both directions, and two equally good models have some too. The "
        "tables by group show whether there is more to it.",
        "± is one standard error, with lines as the independent units. Among twenty rows, one beyond two standard "
        "errors is expected by chance.",
    ]


class Grouping(NamedTuple):
    """A table of gains by group of steps."""

    title: str
    explanation: str
    groups: list[Group]


def groupings(c: Comparison) -> list[Grouping]:
    """Return the tables by group; of the previous words, only those that move the total most."""
    better = [g for g in c.by_previous if g.gain > 0][:MAX_PREVIOUS]
    worse = [g for g in c.by_previous if g.gain <= 0][-MAX_PREVIOUS:]
    return [
        Grouping("Count of the word in training", "The predicted word, rarest first.", c.by_frequency),
        Grouping(
            "Count of the pair in training",
            "How often the word follows its previous word. For a pair that never occurs, only longer context helps.",
            c.by_pair,
        ),
        Grouping(
            "Previous word, by total gain",
            f"The previous words that move the total most, each way, among those with at least {MIN_STEPS} steps.",
            better + worse,
        ),
    ]


def sections(c: Comparison) -> list[tuple[str, list[ComparedStep]]]:
    """Return the two lists of steps with their headings."""
    return [
        (f"Where {c.a.name} is furthest ahead", c.a_ahead),
        (f"Where {c.b.name} is furthest ahead", c.b_ahead),
    ]


def component_notes(c: Comparison) -> list[str]:
    """Explain the components of the mixtures in this comparison."""
    return [COMPONENTS[head] for head in ("mos", "moc") if head in (c.a.head, c.b.head)]


def shown_components(prediction: Prediction) -> tuple[list[Component], str]:
    """Return the components with the largest weight or share, and a clause about the rest."""
    ordered = sorted(prediction.components, key=lambda x: max(x.weight, x.share or 0.0), reverse=True)
    rest = ordered[MAX_COMPONENTS:]
    weight = format_probability(sum(component.weight for component in rest))
    return ordered[:MAX_COMPONENTS], f"Weight of the other {len(rest)}: {weight}" if rest else ""


def format_probability(p: float) -> str:
    """Format a probability: 0.38, 0.004, 2e-05."""
    return f"{p:.2f}" if p >= 0.0095 else f"{p:.1g}"


def format_gain(group: Group) -> str:
    return f"{group.gain:+.4f}{_error(group)}"


def visible(token: str) -> str:
    """Replace a token of one space by a symbol that can be seen."""
    return "␣" if token == " " else token


def _error(group: Group) -> str:
    return "" if group.gain_se is None else f" ± {group.gain_se:.4f}"
