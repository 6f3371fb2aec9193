"""`highrank explore`: see in the browser what a mixture does with any text."""

import contextlib
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from highrank.cli.console import say
from highrank.cli.options import DataDir, Device
from highrank.device import find_device
from highrank.errors import MissingPackageError

DEFAULT_ANALYSIS = Path("analysis/analysis.json")


def explore(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders of Hugging Face models.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on. Any other one lets others on the network use the models."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 8642,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    analysis: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Show the spectra of this result of 'highrank analyze'. Default: {DEFAULT_ANALYSIS}, if it exists.",
        ),
    ] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Show in the browser what models predict for any text, and which components of a mixture predict it.

    Type a text and move the cursor: words are coloured by surprisal, and the panel shows the prediction at the cursor.
    With several runs, the page compares two of them. Everything runs on this machine. Ctrl-C ends it.
    """
    try:
        from highrank.explore.server import create_app, listen, new_server
    except ImportError:
        raise MissingPackageError("starlette or uvicorn", "explore") from None
    from highrank.explore.explorer import Explorer
    from highrank.explore.model import open_models

    if analysis is None and DEFAULT_ANALYSIS.exists():
        analysis = DEFAULT_ANALYSIS
    torch_device = find_device(device)
    with listen(host, port) as listener:  # before the models are read, which takes longer than finding a port in use
        address, port = listener.getsockname()[:2]
        explorers = [Explorer(model) for model in open_models(runs, torch_device)]
        app = create_app(explorers, address=address, analysis=analysis, data_dir=data_dir)
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}/"
        say(f"Exploring at {url} (Ctrl-C ends)")
        sys.stdout.flush()  # a pipe would show it at the end only
        if browser:
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            new_server(app).run(sockets=[listener])
