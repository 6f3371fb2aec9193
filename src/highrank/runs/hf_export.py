"""A run as a folder that `transformers` loads: configuration, safetensors, tokenizer and a model card."""

from pathlib import Path

from highrank.evaluation.score import format_score
from highrank.files import whole_folder, write_text
from highrank.runs.folder import Run
from highrank.runs.record import read_summary
from highrank.runs.text_model import load

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags:
- highrank
- mixture-of-softmaxes
---

# {recipe}

An AWD-LSTM language model with a {head} head (Yang et al., *Breaking the Softmax Bottleneck*, ICLR 2018), trained on
{corpus} with highrank.

{scores}

```python
import highrank.hf  # pip install '.[hf]' in a clone of highrank
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
inputs = tokenizer("the", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=40, do_sample=True)[0]))
```

`logits` are log-probabilities. The state is returned as `state`: pass it in to continue a text.
The vocabulary has {vocabulary:,} {unit}, and every line end is `<eos>`.
"""


def export_hf(run: Run, folder: Path) -> list[Path]:
    """Write the best weights of a language model into a new `folder`, and return the files written."""
    from highrank.hf.language_model import from_language_model, make_tokenizer

    loaded = load(run.folder)
    recipe = loaded.recipe
    level = recipe.data.level
    summary = read_summary(run)
    scores = "Not evaluated yet."
    if summary is not None:
        valid, test = (format_score(ppl, level) for ppl in (summary.valid_ppl, summary.test_ppl))
        scores = f"{'Loss' if level == 'char' else 'Perplexity'} on valid / test: {valid} / {test}."
    card = CARD.format(
        recipe=recipe.name,
        head=recipe.model.head,
        corpus=Path(recipe.data.corpus).name,
        scores=scores,
        vocabulary=len(loaded.words),
        unit={"word": "words", "char": "characters", "bpe": "pieces of words"}[level],
    )
    with whole_folder(folder) as temporary:
        from_language_model(loaded.model, recipe.model, loaded.words).save_pretrained(temporary)
        make_tokenizer(loaded.codec).save_pretrained(temporary)
        write_text(temporary / "README.md", card)
    return sorted(folder.iterdir())
