"""Text -> vocabulary -> ids -> batches.

catalog.py       the corpora that recipes name; folders.py finds them, download.py gets them
corpus.py        a corpus in memory: three splits of ids over one vocabulary
batches.py       ids as parallel columns, and windows of random length over them
own_text.py      a corpus of the user's own text, with a tokenizer (tokenizer.py)
prepare.py       text larger than memory: shards.py -> blocks.py -> indexed.py; prepared.py and sentences.py read it
dialog.py        dialogs: contexts and responses
pydoc.py, text8.py, synthetic.py   particular texts and languages
"""
