"""A local web page that shows what a mixture does with any text (`highrank explore`).

model.py       opens runs and Hugging Face models
explorer.py    scores and predictions at every position of a text, and continuations of it
prefixes.py    keeps what was computed for the prefixes of a text
overview.py    the training curve, the spectrum and the use of components of a whole model
server.py      the web server; page.html is its one page
"""
