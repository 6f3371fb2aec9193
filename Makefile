# `make quickstart` and `make test` are all a newcomer needs. Each target sets up .venv first, which takes no time when it is up to date.
.PHONY: quickstart test test-oldest test-newest check format docs clean

quickstart:
	@./setup.sh doctor,explore,text
	@.venv/bin/highrank quickstart

test:
	@./setup.sh dev
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --maxprocesses 8

# The oldest and the newest versions that pyproject.toml allows. torch brings its CUDA libraries: a download of several
# gigabytes.
test-oldest: resolution = lowest-direct
test-newest: resolution = highest
test-oldest test-newest: venv = .venv-$(@:test-%=%)
test-oldest test-newest:
	@./setup.sh dev
	@.venv/bin/uv venv --quiet --clear --python .venv/bin/python $(venv)
	@VIRTUAL_ENV=$(venv) .venv/bin/uv pip install --quiet --resolution $(resolution) -e ".[dev]"
	@OMP_NUM_THREADS=1 $(venv)/bin/python -m pytest -n auto --maxprocesses 8

check:
	@./setup.sh dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format:
	@./setup.sh dev
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

# The pages of docs/, and the commands' help, as a website in site/.
docs:
	@./setup.sh docs
	@.venv/bin/typer highrank.cli utils docs --name highrank --title Commands --output docs/commands.md
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict --quiet
	@echo "Written to site/index.html"

clean:
	rm -rf .venv .venv-oldest .venv-newest .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
