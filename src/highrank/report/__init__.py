"""Tables, figures and pages from the records in results/. Only the paper's own numbers are typed by hand.

table.py        a table of text cells, and its Markdown; templates/ and page.py turn it into HTML
records.py      reads results/runs, results/analysis and results/benchmarks
paper.py        the numbers that the paper prints, with the tables they are from
results.py      a table that compares the paper's numbers with ours, and says where each of ours comes from
scores.py       the perplexities of a run before and after finetuning, with a cache, with dynamic evaluation
perplexity.py, rank.py, cost.py, overview.py    the tables themselves
build.py        all tables of one results folder
write.py        writes them as a page, and into the documents that show them
figures/        matplotlib figures, also those of other commands
comparison/     the page of `highrank compare`
"""
