"""The web server: what it answers, and what it does not."""

import socket

import pytest
from starlette.testclient import TestClient

from helpers import CPU
from highrank.errors import UserError
from highrank.explore.explorer import CHUNK, Explorer
from highrank.explore.model import open_models
from highrank.explore.server import MAX_CHARACTERS, create_app, listen

GENERATE = {"model": 0, "text": "the", "length": 3, "temperature": 1.0, "top_p": 0.9, "beam": 0, "seed": 1}


@pytest.fixture
def client(runs):
    explorers = [Explorer(model) for model in open_models([runs["mos"], runs["softmax"]], CPU)]
    return TestClient(create_app(explorers), base_url="http://localhost")


def test_the_page_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text


def test_models_are_listed_in_order(client):
    assert [model["name"] for model in client.get("/models").json()] == ["mos", "softmax"]


def test_a_text_is_read(client):
    answer = client.post("/read", json={"model": 0, "text": "the cat", "cursor": 7}).json()
    assert [token["end"] for token in answer["tokens"]] == [3, 7]
    assert answer["prediction"]["actual"]["word"] == "cat"


def test_a_long_text_is_read_in_several_requests(client, monkeypatch):
    monkeypatch.setattr("highrank.explore.server.SECONDS", 0)
    request = {"model": 0, "text": "the cat " * CHUNK, "cursor": 0}
    first, second = (client.post("/read", json=request).json() for _ in range(2))
    assert (first["complete"], second["complete"]) == (False, True)


def test_sampling_and_beams_continue_a_text(client):
    assert len(client.post("/generate", json=GENERATE).json()) == 3
    assert len(client.post("/generate", json=GENERATE | {"beam": 2}).json()) == 2


def test_usage_is_measured_on_validation_text(client):
    usage = client.get("/models/0/usage").json()
    assert sum(component["responsibility"] for component in usage) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "192.168.0.7", "", "[::1"]
)
def test_another_host_is_refused(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1:8642", "[::1]:8642"])
def test_this_machine_is_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["192.168.0.7:8642", "colleague.example"])
def test_a_server_opened_to_the_network_answers_to_any_name(host):
    client = TestClient(create_app([], address="0.0.0.0"))
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("request_body", "status"),
    [
        ({"model": 0, "text": "a" * (MAX_CHARACTERS + 1), "cursor": 0}, 413),
        ({"model": 0, "text": "a" * 10**6, "cursor": 0}, 413),
        ({"model": 7, "text": "a", "cursor": 0}, 404),
        ({"model": 0, "text": 5, "cursor": 0}, 400),
        ({"model": 0, "cursor": 0}, 400),
    ],
)
def test_requests_that_cannot_be_answered_get_an_error(client, request_body, status):
    answer = client.post("/read", json=request_body)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize("wrong", [{"length": 10**6}, {"beam": 1000}, {"temperature": -1}, {"top_p": 0}, {"seed": -1}])
def test_settings_out_of_range_are_errors(client, wrong):
    assert client.post("/generate", json=GENERATE | wrong).status_code == 400


def test_only_json_is_accepted(client):
    body = '{"model": 0, "text": "a", "cursor": 0}'
    assert client.post("/read", content=body, headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.post("/read", content="{", headers={"Content-Type": "application/json"}).status_code == 400


def test_a_used_port_is_an_error():
    with listen("127.0.0.1", 0) as listener, pytest.raises(UserError):
        listen("127.0.0.1", listener.getsockname()[1])


def test_answers_are_sent_at_once():
    """Without TCP_NODELAY every answer takes 40 ms longer."""
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_runs_of_one_name_are_named_by_their_paths(runs):
    models = open_models([runs["mos"], runs["mos"].parent / "mos"], CPU)
    assert models[0].name == str(runs["mos"])
