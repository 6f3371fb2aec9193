"""`highrank generate`: continue a text with a trained run."""

import secrets
from typing import Annotated

import typer

import highrank
from highrank.cli.console import note
from highrank.cli.options import Device, RunFolder
from highrank.errors import UserError


def generate(
    run: RunFolder,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Text to continue; <eos> starts a new line.")] = "<eos>",
    length: Annotated[int, typer.Option(min=1, help="Number of tokens to generate; with --beam, at most.")] = 100,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Below 1 prefers likely words; 0 always takes the likeliest.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the k likeliest words only. Default: all.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0.001, max=1.0, help="Sample from the likeliest words up to this total probability only."),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Search the likeliest continuations with a beam of N instead."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Print N continuations.")] = 1,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same text. Default: drawn and shown."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Continue a text with a trained language model.

    --beam prints the N likeliest continuations, each after its log-probability. They go up to the end of the line, in
    texts that have lines.
    """
    import torch

    random = samples > 1 or temperature != 1 or top_k is not None or top_p is not None or seed is not None
    if beam is not None and random:
        raise UserError(
            "--beam N prints the N likeliest continuations, not samples: leave out --samples, --temperature, --top-k, "
            "--top-p and --seed."
        )
    model = highrank.load(run, device)
    if unknown := model.codec.encode(prompt).unknown:
        note(f"not in the vocabulary, replaced by <unk>: {' '.join(unknown)}")
    if beam is not None:
        for found in model.beam_search(prompt, beam_size=beam, length=length):
            print(f"{found.log_prob:9.2f}  {found.text}")
        return
    shown = seed is None and temperature > 0
    if seed is None:
        seed = secrets.randbelow(2**32)
    generator = torch.Generator().manual_seed(seed)
    texts = [
        model.generate(prompt, length=length, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        for _ in range(samples)
    ]
    if shown:
        note(f"--seed {seed} gives this text again.")
    print("\n\n".join(texts))
