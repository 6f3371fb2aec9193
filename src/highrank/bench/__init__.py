"""Benchmarks: what the loss, the LSTM and whole training steps cost on this machine (`highrank bench`).

mos_nll.py   the loss of a mixture, at the paper's sizes and over K, V and N, next to the peers in peers.py
lstm.py      the paper's recurrent layers, next to `nn.LSTM`
step.py      whole training updates, and the paper's table of slowdowns

measure.py times a call and measures its memory; table.py runs a benchmark and keeps its rows in a CSV file.
"""
