"""Give a Hugging Face model a mixture of softmaxes and finetune it with `Trainer`.

    pip install '.[hf]' accelerate
    python examples/convert_and_finetune.py gpt2 train.txt --out gpt2-mixture

MODEL is a folder or a name on the hub. The converted model starts with exactly the predictions of the original, so the
first loss printed is the original's.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import highrank.hf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, default=Path("mixture"))
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-5)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model)
    model = highrank.hf.convert(model, args.components)

    ids = torch.tensor(tokenizer(args.text.read_text(), verbose=False)["input_ids"])
    windows = ids[: len(ids) // args.context * args.context].view(-1, args.context)
    examples = [{"input_ids": window, "labels": window} for window in windows]
    held_out = max(1, len(examples) // 10)

    arguments = TrainingArguments(
        args.out,
        max_steps=args.steps,
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.lr,
        logging_steps=max(1, args.steps // 10),
        save_strategy="no",
        report_to=[],
    )
    trainer = Trainer(model, arguments, train_dataset=examples[:-held_out], eval_dataset=examples[-held_out:])
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    print(f"validation loss: {before:.4f} before, {after:.4f} after {args.steps} steps")

    model.save_pretrained(args.out)  # load it with AutoModelForCausalLM.from_pretrained after `import highrank.hf`
    tokenizer.save_pretrained(args.out)
    prompt = tokenizer(tokenizer.decode(ids[:8]), return_tensors="pt", add_special_tokens=False)["input_ids"]
    prompt = prompt.to(model.device)
    print(tokenizer.decode(model.generate(prompt, max_new_tokens=40, do_sample=True)[0]))


if __name__ == "__main__":
    main()
