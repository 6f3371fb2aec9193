# The two commands a newcomer needs: `make quickstart` and `make test`. Both set up .venv first, at no cost when it is there.
.PHONY: quickstart test check format clean

quickstart:
	@./setup.sh
	@.venv/bin/highrank quickstart

test:
	@./setup.sh dev
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --maxprocesses 8

check:
	@./setup.sh dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format:
	@./setup.sh dev
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
