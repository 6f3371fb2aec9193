"""`highrank bench`: what the loss, the LSTM and whole training steps cost here, beside their peers, in one run.

mos_nll.py   the loss of a mixture at the paper's sizes, against the naive computation and the peers in `peers.py`
scaling.py   the same loss over K, V and N, against a plain softmax
lstm.py      the paper's three layers, padded and not, launched one by one and as a graph
step.py      whole training updates, and the paper's table of slowdowns (its appendix on computational time)
parts.py     several of them within a time
record.py, table.py, figure.py   what they leave: a CSV, a table, a picture
"""
