"""`highrank generate`: continue a text with a trained run."""

import itertools
import secrets
from typing import Annotated

import typer

import highrank
from highrank.cli.console import note
from highrank.cli.options import Device, RunFolder, find_device
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

    --beam prints the N likeliest continuations up to the end of the line, each after its log-probability.
    """
    import torch

    from highrank.data.corpus import EOS
    from highrank.evaluation.generate import continue_by_beam
    from highrank.evaluation.generate import generate as generate_ids
    from highrank.runs.folder import Run

    torch_device = find_device(device)
    loaded = highrank.load(run, torch_device)
    codec = Run(run).codec()
    if codec.eos is None:
        prompt = prompt.replace(EOS, " ")  # text8 has no line ends
    encoded = codec.encode(prompt)
    if not encoded.ids:
        raise UserError("--prompt is empty: give at least one word, for example --prompt '<eos>'.")
    if encoded.unknown:
        note(f"not in the vocabulary, replaced by <unk>: {' '.join(encoded.unknown)}")
    ids = torch.tensor(encoded.ids, device=torch_device)
    if beam is not None and samples > 1:
        raise UserError("--beam N already prints N continuations: leave out --samples.")
    if beam is not None:
        if codec.eos is None:
            raise UserError(f"{run} has no line ends, where a beam search would stop: leave out --beam.")
        found = continue_by_beam(loaded.model, ids, eos=codec.eos, beam_size=beam, max_length=length)
        for words, log_prob in zip(found.to_lists()[0], found.log_prob[:, 0].tolist(), strict=False):
            text = codec.decode(encoded.ids + words).strip("\n")
            print(f"{log_prob:9.2f}  {text}")
        return
    if seed is None and temperature > 0:
        seed = secrets.randbelow(2**32)
        note(f"--seed {seed} gives this text again.")
    generator = torch.Generator().manual_seed(seed or 0)
    for sample in range(samples):
        if sample > 0:
            print()
        stream = generate_ids(loaded.model, ids, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
        print(codec.decode([*encoded.ids, *itertools.islice(stream, length)]).strip("\n"))
