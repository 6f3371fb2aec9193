"""Benchmarks: what the loss, the LSTM and whole training steps cost on this machine (`highrank bench`).

mos_nll.py   the loss of a mixture at the paper's sizes, next to the naive computation and the peers in peers.py
scaling.py   the same loss over K, V and N, next to a plain softmax
lstm.py      the paper's recurrent layers, next to `nn.LSTM`
step.py      whole training updates, and the paper's table of slowdowns

timing.py and memory.py measure a call; table.py keeps the rows and writes them as CSV.
"""
