"""`python -m highrank.hf.lm_eval ...` is `lm_eval ...` (lm-eval) for converted models and exported runs."""

import highrank.hf  # noqa: F401  (registers our models with transformers)

if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
