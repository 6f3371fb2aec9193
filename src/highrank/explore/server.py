"""The web server of the explorer: one page, and the explorers behind it as JSON.

A page of another site must not use it. So requests must be JSON (which other sites cannot send without asking first),
and a server that only this machine can reach answers to the names of this machine only (a site whose name is made to
point at 127.0.0.1 sends its own name in the Host header). The page itself may load nothing from elsewhere.
"""

import base64
import hashlib
import ipaddress
import json
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from highrank.errors import UserError
from highrank.explore.explorer import Explorer
from highrank.explore.overview import component_usage, overview, validation_ids
from highrank.schema import from_json, to_json

MAX_CHARACTERS = 10_000  # of a text
MAX_BYTES = 8 * MAX_CHARACTERS  # of a request
SECONDS = 0.05  # of reading per request; the page shows what was read and asks for the rest
MAX_LENGTH = 200  # of a continuation
MAX_BEAM = 20


@dataclass(frozen=True)
class ReadRequest:
    model: int
    text: str
    cursor: int  # number of characters before it


@dataclass(frozen=True)
class GenerateRequest:
    model: int
    text: str
    length: int
    temperature: float
    top_p: float
    beam: int  # 0: sample
    seed: int


def create_app(
    explorers: Sequence[Explorer],
    *,
    address: str = "127.0.0.1",
    analysis: Path | None = None,
    data_dir: Path | None = None,
) -> Starlette:
    """Return the web application that shows the given models to those who can reach `address`."""
    page = (files("highrank.explore") / "page.html").read_text(encoding="utf-8")
    overviews = to_json([overview(explorer.model, analysis) for explorer in explorers])
    usage: dict[int, Any] = {}

    def find(model: int) -> Explorer:
        if not 0 <= model < len(explorers):
            raise HTTPException(404, "there is no such model")
        return explorers[model]

    async def show_page(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": content_policy(page)})

    async def list_models(request: Request) -> Response:
        return JSONResponse(overviews)

    async def read(request: Request) -> Response:
        body = await parse(request, ReadRequest)
        return await answer(lambda: find(body.model).read(body.text, body.cursor, seconds=SECONDS))

    async def generate(request: Request) -> Response:
        body = await parse(request, GenerateRequest)
        check_range("length", body.length, 1, MAX_LENGTH)
        check_range("beam", body.beam, 0, MAX_BEAM)
        check_range("temperature", body.temperature, 0, 10)
        check_range("top_p", body.top_p, 0.001, 1)
        check_range("seed", body.seed, 0, 2**63 - 1)
        explorer = find(body.model)
        if body.beam:
            return await answer(lambda: explorer.search(body.text, body.length, body.beam))
        return await answer(
            lambda: explorer.sample(
                body.text, body.length, temperature=body.temperature, top_p=body.top_p, seed=body.seed
            )
        )

    async def show_usage(request: Request) -> Response:
        model = request.path_params["model"]
        explorer = find(model)

        def measure() -> Any:
            if model not in usage:
                ids = validation_ids(explorer.model, data_dir)
                usage[model] = component_usage(explorer, ids) if ids else None
            return usage[model]

        return await answer(measure)

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/models", list_models),
            Route("/models/{model:int}/usage", show_usage),
            Route("/read", read, methods=["POST"]),
            Route("/generate", generate, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(address), www_redirect=False)],
        exception_handlers={HTTPException: show_error},
    )


def new_server(app: Starlette) -> uvicorn.Server:
    """Return a server whose `run(sockets=[listener])` answers requests until Ctrl-C."""
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1))


def listen(host: str, port: int) -> socket.socket:
    """Open the port to listen on; port 0 stands for any free one."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UserError(f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another.") from None
    # uvicorn sends headers and body apart: by default the body waits until the client confirms the headers, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def allowed_hosts(address: str) -> list[str]:
    """Return the names in the Host header that a server on this address answers; "*" stands for any."""
    if ipaddress.ip_address(address).is_loopback:
        return ["localhost", "[::1]", address]
    return ["*"]  # this machine may have any name in its network


T = TypeVar("T", ReadRequest, GenerateRequest)


async def parse(request: Request, cls: type[T]) -> T:
    """Read the body of a request as a dataclass."""
    too_long = HTTPException(413, f"the text is longer than {MAX_CHARACTERS:,} characters")
    if request.headers.get("content-type") != "application/json":
        raise HTTPException(415, "send application/json")
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BYTES:
            raise too_long
    try:
        body = from_json(cls, json.loads(data))
    except ValueError as error:  # also a SchemaError
        raise HTTPException(400, str(error)) from None
    if len(body.text) > MAX_CHARACTERS:
        raise too_long
    return body


async def answer(compute: Callable[[], Any]) -> Response:
    """Compute in a thread, so that other tabs are answered meanwhile, and return the result as JSON."""
    try:
        return JSONResponse(to_json(await run_in_threadpool(compute)))
    except UserError as error:
        raise HTTPException(400, str(error)) from None


async def show_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise HTTPException(400, f"{name} must be between {low} and {high}")


def content_policy(page: str) -> str:
    """Allow the page its own script, styles and requests, and nothing else."""
    script = re.search(r"<script>(.*?)</script>", page, flags=re.S)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
