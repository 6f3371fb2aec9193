"""Runs on disk, and what can be done with them.

folder.py        a run folder, with the files of checkpoint.py, metrics.py and provenance.py
launch.py        train a recipe: corpora.py loads its corpus, training.py trains, warm_start.py copies weights
record.py        the results of a run; evaluations.py adds dynamic evaluation and the cache (adaptation.py)
text_model.py    a loaded language model; dialog.py: a loaded dialog model; run_evaluation.py: its perplexity
analysis.py, comparison.py, doctor.py, uptrain.py   the glue between runs and the analyses; disk_cache.py keeps results
export.py        a run for another machine; hf_export.py: for transformers
listing.py       the list of runs in a folder
"""
