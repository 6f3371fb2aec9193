"""Training in memory.

task.py          what is trained: language.py and dialog.py, in a precision (precision.py)
step.py          one update; graph.py runs it as a CUDA graph
nt_asgd.py       SGD with averaged weights; two_tailed.py: another average; adam.py: another direction
stages.py        updates, epochs and stages, with their state (state.py)
loop.py          repeats them until the run ends or pauses, and reports to callbacks.py
checkpoint.py    everything that training continues from
ranks.py         several processes that train one model
"""
