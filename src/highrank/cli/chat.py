"""`highrank chat`: talk to a dialog model."""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from highrank.cli.console import note, say
from highrank.cli.options import Device, RunFolder
from highrank.device import find_device
from highrank.errors import MissingPackageError, UserError

PROMPT = "you> "


def chat(
    run: RunFolder,
    beam: Annotated[int | None, typer.Option(min=1, metavar="N", help="Beam size. Default: the recipe's.")] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(min=0.0, help="0 scores by log-probability, 1 by its mean per word, which favours long replies."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.01, help="Draw the replies at random: 1 as the model predicts, lower for safer ones."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Talk to a dialog model. It shows its best replies after their scores, which are log-probabilities in nats.

    With --temperature, it shows random replies.

    The first reply joins the dialog, and later replies depend on it. Ctrl-D ends the chat. Lines can also be piped in:

      echo "do you like music" | highrank chat runs/swda-mos
    """
    from highrank.data.dialog import Utterance, split_words
    from highrank.evaluation.dialog import find_replies
    from highrank.runs.dialog import load_dialog

    model, words, recipe = load_dialog(run, find_device(device))
    decoding = recipe.decoding
    if beam is not None:
        decoding = dataclasses.replace(decoding, beam_size=beam, n_best=min(beam, decoding.n_best))
    if length_penalty is not None:
        decoding = dataclasses.replace(decoding, length_penalty=length_penalty)
    if temperature is not None and (beam is not None or length_penalty is not None):
        raise UserError("--temperature draws replies at random: leave out --beam and --length-penalty.")
    known = set(words)
    dialog: list[Utterance] = []
    for line in _lines():
        spoken = split_words(line)
        if not spoken:
            continue
        if unknown := [word for word in spoken if word not in known]:
            note(f"not in the vocabulary, replaced by <unk>: {' '.join(unknown)}")
        dialog.append(Utterance("you", spoken))
        replies = find_replies(model, words, dialog, "model", recipe.data, decoding, temperature)
        for reply in replies:
            say(f"{reply.score:9.2f}  {reply.text or '(no words)'}")
        if replies[0].words:
            dialog.append(Utterance("model", replies[0].words))


def _lines() -> Iterator[str]:
    """Yield what the user types, or the lines of a pipe, which are shown as if they were typed."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            say(f"{PROMPT}{line.strip()}")
            yield line
        return
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        raise MissingPackageError("prompt_toolkit", "chat") from None
    session: PromptSession[str] = PromptSession()  # line editing, and a history of this chat
    say("Type a line; Ctrl-D ends.")
    while True:
        try:
            yield session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue  # Ctrl-C drops the line
        except EOFError:
            return
