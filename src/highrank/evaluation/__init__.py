"""Scores of a trained model, and text that it generates.

perplexity.py    exact perplexity; score.py formats it
dynamic.py       dynamic evaluation; cache.py: the continuous cache; tune.py searches for the settings of both
generate.py      sampling from language models; beam.py: beam search for any model
dialog.py        perplexity and BLEU (bleu.py) of responses
"""
