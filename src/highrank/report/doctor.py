"""The diagnosis of a model in words: a table of its numbers, and a reading in plain English.

The reading says what was measured and what it means. It names what the literature disputes, and recommends nothing.
docs/doctor.md has the references.
"""

from highrank.analysis.diagnosis import DoctorRecord, GradientDiagnosis
from highrank.analysis.matrix import default_rows
from highrank.analysis.record import Analysis


def table_rows(record: DoctorRecord) -> list[tuple[str, str]]:
    """Return the names and values of the main numbers."""
    layer = record.weights.layer
    never = record.weights.unargmaxable
    undecided = f" ({len(never.undecided):,} undecided)" if never.undecided else ""
    median = layer.norms[len(layer.norms) // 2]
    head = f"{record.head} K={record.n_components}" if record.head in ("moc", "mos") else record.head
    rows = [
        ("head", f"{head}, {layer.vocabulary:,} x {layer.embed_dim:,}, {'with' if layer.has_bias else 'no'} bias"),
        ("rank of the output matrix", f"{layer.rank:,} (effective {layer.effective_rank:,.1f})"),
        ("bound on the rank of log P", _bound(record)),
        ("row norms", f"{layer.norms[0]:.3g} to {layer.norms[-1]:.3g}, median {median:.3g}"),
        ("mean cosine of two rows", f"{layer.mean_cosine:.3f}"),
        ("isotropy", f"{layer.isotropy:.3g} of 1"),
        ("tokens that can never be most likely", f"{len(never.tokens):,} of {layer.vocabulary:,}{undecided}"),
        *([("tokens with nearly another's row", f"{len(never.near_copies):,}")] if never.near_copies else []),
        ("gradient share of a random direction", f"{record.weights.random_share:.3f}"),
    ]
    if record.gradient is not None:
        rows.append(("saturation (cosine of two contexts)", f"{record.gradient.saturation:.3f}"))
        rows.append(("gradient share on the text", f"{record.gradient.share.mean:.3f}"))
    if record.gradient is not None and record.gradient.reach is not None:
        reach = record.gradient.reach
        rows.append(("reach of the mixture", f"at least {reach.mean:.3f} (random direction {reach.random:.3f})"))
    if record.predictions is not None:
        rows += _prediction_rows(record.predictions)
    return rows


def reading(record: DoctorRecord) -> list[str]:
    """Return the paragraphs of the reading."""
    paragraphs = [_bound_paragraph(record), _token_paragraph(record), _rank_paragraph(record)]
    if record.weights.unargmaxable.near_copies:
        paragraphs.insert(2, _copies_paragraph(record))
    if record.gradient is not None:
        paragraphs.append(_saturation_paragraph(record, record.gradient))
        paragraphs.append(_gradient_paragraph(record, record.gradient))
    if record.predictions is not None:
        paragraphs.append(_prediction_paragraph(record, record.predictions))
    paragraphs.append(
        "These numbers describe this model. They do not show that another head would predict better: only training "
        "both on the same text shows that. docs/doctor.md explains every number and has the references."
    )
    return paragraphs


def _bound(record: DoctorRecord) -> str:
    bound = f"{record.weights.layer.rank_bound:,}"
    return {"mos": f"none ({bound} per component)", "other": "none known"}.get(record.head, bound)


def _prediction_rows(predictions: Analysis) -> list[tuple[str, str]]:
    kld = predictions.kld
    rank = f"{predictions.rank:,} of at most {predictions.rank_bound:,} (effective {predictions.effective_rank:,.1f})"
    rows = [
        ("perplexity", f"{predictions.perplexity:.2f}"),
        ("rank of log P on the text", rank),
    ]
    if kld is not None:
        rows.append(("pairwise KLD", f"{kld} nats"))
    if (varying := predictions.varying) is not None:
        directions = f"{varying.directions_90:,} directions, 99 % in {varying.directions_99:,}"
        rows.append(("90 % of the variance with context", directions))
    return rows


def _bound_paragraph(record: DoctorRecord) -> str:
    layer = record.weights.layer
    matrix = f"a {layer.vocabulary:,} x {layer.embed_dim:,} matrix of rank {layer.rank:,}"
    added = "one for the normaliser and one for the bias" if layer.has_bias else "one for the normaliser"
    parts = f"the rank of the matrix plus {added}"
    bound = f"rank at most {layer.rank_bound:,} ({parts}; Yang et al. 2018)"
    if record.head == "mos":
        return (
            f"{record.model} mixes {record.n_components} softmaxes over {matrix}. The log-probabilities of each "
            f"softmax have {bound}, those of the mixture are not limited by it."
        )
    if record.head == "other":
        return (
            f"{record.model} caps or scales its logits, which come from {matrix}. Without that, its log-probabilities "
            f"would have {bound}; with it, the bound need not hold."
        )
    return f"{record.model} ends in a softmax over {matrix}. On any text, its log-probabilities have {bound}."


def _token_paragraph(record: DoctorRecord) -> str:
    never = record.weights.unargmaxable
    subject = "one component" if record.head == "mos" else "the model"
    assumption = (
        "The hidden state may be any vector here; a layer norm or tanh before the output layer limits it, so a trained "
        "model may reach fewer tokens."
    )
    if record.head == "mos":
        assumption += " A mixture can also put a token first that no component puts first."
    count = len(never.undecided)
    if not never.tokens:
        every = f"every token except {count:,} undecided (listed in doctor.json)" if count else "every token"
        return f"For {every}, some hidden state makes it the most likely one for {subject}. {assumption}"
    consequence = "sampling can produce them, greedy decoding cannot"
    if record.head == "mos":
        consequence = "only a mixture of several components can put them first"
    words = ", ".join(repr(word) for word in record.never[:5])
    more = ", ..." if len(never.tokens) > 5 else ""
    copies = ""
    if never.identical:
        copies = f" {never.identical:,} of these always tie with a token of the same row (and bias)."
    undecided = f" {count:,} more are undecided (listed in doctor.json)." if count else ""
    return (
        f"{len(never.tokens):,} {'token' if len(never.tokens) == 1 else 'tokens'} ({words}{more}) can never be the "
        f"single most likely one for {subject}, whatever the hidden state: {consequence}.{copies}{undecided} "
        f"Demeter et al. (2020) predicted such tokens, Grivas et al. (2022) found few in trained models. {assumption}"
    )


def _copies_paragraph(record: DoctorRecord) -> str:
    count = len(record.weights.unargmaxable.near_copies)
    return (
        f"{count:,} of {record.weights.layer.vocabulary:,} tokens have nearly the row of another one, within 0.1% of "
        "its norm. They tie with it in practice, and are not counted above. Tokens that training never saw often have "
        "such rows."
    )


def _rank_paragraph(record: DoctorRecord) -> str:
    layer = record.weights.layer
    return (
        f"The effective rank of the output matrix is {layer.effective_rank:,.1f}, "
        f"{layer.effective_rank / layer.rank:.0%} of its rank. A low value goes with saturation, where small "
        "models stop improving or get worse late in training (Godey et al. 2024), but need not be its cause "
        "(Kulkarni et al. 2026)."
    )


def _saturation_paragraph(record: DoctorRecord, gradient: GradientDiagnosis) -> str:
    vectors = "context vectors of the same component" if record.head == "mos" else "context vectors"
    return (
        f"Two {vectors} have a cosine of {gradient.saturation:.3f} on average. Godey et al. (2024) found that this "
        "anisotropy appears together with saturation in small models. One value tells little: compare it over training."
    )


def _gradient_paragraph(record: DoctorRecord, gradient: GradientDiagnosis) -> str:
    share = gradient.share
    text = (
        f"Of the loss gradient at the logits, {share.mean:.1%} of the norm passes through the output matrix, on "
        f"average over {share.tokens:,} tokens of {record.text}; of a random direction, {share.random:.1%} would. "
        "Godey and Artzi (2026) report that language models lose 95 to 99 % of it, and that this slows training."
    )
    if gradient.reach is not None:
        text += (
            f" Together, the {record.n_components} components of the mixture can move the log-probabilities in more "
            f"directions than one softmax: at least {gradient.reach.mean:.1%} of their gradient lies in these "
            f"({gradient.reach.tokens} tokens; of a random direction, {gradient.reach.random:.1%} would)."
        )
    return text


def _prediction_paragraph(record: DoctorRecord, predictions: Analysis) -> str:
    text = f"After {record.tokens:,} tokens of {record.text}, the log-probabilities have rank {predictions.rank:,}."
    # A few tokens repeat a context, so the rank of a mixture may end a little below their number.
    if predictions.rank_bound == record.tokens and predictions.rank > 0.9 * record.tokens:
        text += " The number of tokens limits it: read more to see its full value."
    if record.tokens == default_rows(record.weights.layer.vocabulary):
        text += (
            " By default, fewer tokens are read for a large vocabulary; --tokens N needs memory for 2 N x V numbers."
        )
    if (varying := predictions.varying) is not None:
        text += (
            f" Of their variance from context to context, {varying.directions_90:,} directions hold 90 % and "
            f"{varying.directions_99:,} hold 99 %; D is {record.weights.layer.embed_dim:,}."
        )
    return text
