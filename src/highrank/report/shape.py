"""What a run record and an analysis must look like for the report to read them."""

from highrank.shape import AMOUNT, DRAWN, PERPLEXITY, SEED, TEXT, WHOLE, YES_OR_NO, Columns

SCORES = {"valid_ppl": PERPLEXITY, "test_ppl": PERPLEXITY}
GROWING = {
    **{f"{key}?": leaf for key, leaf in SCORES.items()},  # may have been cut off before the test, or before both
    "seconds?": AMOUNT,
    "provenance?": {"machine?": TEXT, "commit?": TEXT},
}
TRAINED = {"epochs": WHOLE, "seconds": AMOUNT, **SCORES}
RUN = {
    "recipe": TEXT,
    "seed": SEED,
    **TRAINED,
    "provenance": {"machine": TEXT, "commit?": TEXT},
    "updates?": WHOLE,
    "stage?": WHOLE,
    "stages?": [{"stage": WHOLE, **TRAINED}],
    "pieces?": [{"epoch": AMOUNT, "commit?": TEXT, "machine?": TEXT, "exported?": {"averages_only?": YES_OR_NO}}],
    "settings?": {"name": TEXT, "model": {"n_components": WHOLE}},
    "overrides?": {},
    "curve?": Columns(epoch=[AMOUNT], seconds=[AMOUNT], valid_ppl=[DRAWN]),  # a loss that is not finite is a word
    **{f"{how}?": GROWING for how in ("dynamic", "dynamic_tuned", "cache", "cache_tuned")},
}
TUNED = GROWING | {"tuning?": {"tokens": WHOLE, "best": {}, "at_edge": {}}}  # what `highrank record` goes on from
MODEL = {
    "recipe?": TEXT,
    "head": TEXT,
    "rank": WHOLE,
    "effective_rank": AMOUNT,
    "n_components?": WHOLE,
    "epochs?": WHOLE,
    "projected?": WHOLE,
    "kld?": {"mean": AMOUNT, "standard_error": AMOUNT},
    "spectrum?": Columns(index=[AMOUNT], values=[AMOUNT]),
}
ANALYSIS = {"split?": TEXT, "tokens": WHOLE, "vocabulary": WHOLE, "provenance": {}, "models": [MODEL]}
