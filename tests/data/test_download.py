"""Downloads from a server on this machine."""

import dataclasses
import hashlib
import http.server
import io
import threading
import zipfile

import pytest

from helpers import fails, highrank
from highrank.data import catalog
from highrank.data.catalog import CORPORA, SPLITS, WIKITEXT_2, Archive
from highrank.data.download import download_corpus
from highrank.errors import UserError

TEXTS = {split: f"some text of {split} \n".encode() * 20_000 for split in SPLITS}


class Server(http.server.ThreadingHTTPServer):
    """Serve one archive, with or without ranges; `cut` ends connections early."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for split, text in TEXTS.items():
                archive.writestr(f"toy/{split}.tokens", text)
        self.content = content.getvalue()
        self.ranges = True
        self.cut = None
        self.sent = 0

    @property
    def info(self):
        url = f"http://127.0.0.1:{self.server_port}/toy.zip"
        archive = Archive(url, {f"toy/{split}.tokens": f"{split}.txt" for split in SPLITS})
        sha256 = {split: hashlib.sha256(text).hexdigest() for split, text in TEXTS.items()}
        return dataclasses.replace(WIKITEXT_2, archive=archive, sha256=sha256)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        first = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if self.server.ranges else 0
        body = self.server.content[first:]
        if not body:
            self.send_error(416)
            return
        self.send_response(206 if self.server.ranges else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        part = body[: self.server.cut]
        self.server.sent += len(part)  # before the client has it, or the test may look too early
        self.wfile.write(part)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def read(folder):
    return {path.stem: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_holds_the_renamed_files_and_nothing_else(server, tmp_path):
    seen = []
    download_corpus(server.info, tmp_path / "data" / "toy", lambda *progress: seen.append(progress))
    assert read(tmp_path / "data" / "toy") == TEXTS
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["toy"]
    size = len(server.content)
    assert (seen[0], seen[-1]) == ((0, size), (size, size))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_second_attempt_continues_the_first(server, tmp_path, ranges):
    server.cut = 300_000
    with pytest.raises(UserError):
        download_corpus(server.info, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()
    server.cut = None
    server.ranges = ranges
    download_corpus(server.info, tmp_path / "toy")
    assert read(tmp_path / "toy") == TEXTS
    assert server.sent == len(server.content) + (0 if ranges else 300_000)


def test_a_complete_archive_is_only_unpacked(server, tmp_path):
    (tmp_path / "toy.zip.part").write_bytes(server.content)
    download_corpus(server.info, tmp_path / "toy")
    assert read(tmp_path / "toy") == TEXTS
    assert server.sent == 0


@pytest.mark.parametrize("damage", ["checksum", "not a zip"])
def test_a_wrong_archive_is_removed(server, tmp_path, damage):
    info = server.info
    if damage == "checksum":
        info.sha256["valid"] = "0" * 64
    else:
        server.content = b"<html>moved</html>"
    with pytest.raises(UserError):
        download_corpus(info, tmp_path / "toy")
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_an_error(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError):
        download_corpus(server.info, tmp_path / "toy")


def test_the_command_downloads_where_other_commands_look(server, tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.CORPORA, "wikitext-2", dataclasses.replace(server.info, tokens=None, vocabulary=None))
    highrank("data", "get", "wikitext-2", cwd=tmp_path)
    assert highrank("data", "verify", "wikitext-2", cwd=tmp_path).stdout.count("checksum correct") == 3
    assert "not empty" in fails("data", "get", "wikitext-2", cwd=tmp_path)


@pytest.mark.parametrize("name", ["penn", "one-billion-word", "switchboard"])
def test_the_command_says_where_to_get_the_others(name, tmp_path):
    assert CORPORA[name].source in fails("data", "get", name, cwd=tmp_path)
