"""Tables, figures and pages from a folder of records. Only the paper's own numbers are typed by hand.

table.py        a table of text cells, and its Markdown; templates/ and page.py turn it into HTML
results.py      a table that compares the paper's numbers with ours, and says where each of ours comes from
records.py      reads runs/ and analysis/ of the folder
paper.py        the numbers that the paper prints, with the tables they are from
own_runs.py     the table of all recorded runs
perplexity.py, training_score.py, rank.py, dialog.py, cost.py    the tables of the paper
build.py        all tables of one results folder
write.py        writes them as a page, and into the documents that show them
comparison.py   the page of `highrank compare`; comparison_text.py has its sentences
doctor.py       the diagnosis of `highrank doctor` in words
figures/        matplotlib figures, also those of other commands
"""
