"""`highrank explore`: the command around the page."""

import json
import signal
import subprocess
import sys
import urllib.request

from helpers import PROCESS_TIMEOUT, fails


def test_the_page_is_served_until_ctrl_c(place, trained):
    command = [sys.executable, "-m", "highrank", "explore", "run", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            url = next((word for word in line.split() if word.startswith("http://127.0.0.1:")), None)
            assert url, process.stderr.read()
            with urllib.request.urlopen(f"{url}models", timeout=PROCESS_TIMEOUT) as answer:
                assert [model["name"] for model in json.load(answer)] == ["run"]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PROCESS_TIMEOUT)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def test_a_missing_run_is_an_error(tmp_path):
    assert "nothing" in fails("explore", "nothing", cwd=tmp_path)


def test_a_dialog_model_is_an_error(trained_dialog):
    assert "talk" in fails("explore", "talk", cwd=trained_dialog.parent)
