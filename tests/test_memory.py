import pytest
import torch

from helpers import CPU
from highrank import memory


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A folder that stands for the root of the file system; nothing is in it."""
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / path.lstrip("/"))
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys" / "fs" / "cgroup").mkdir(parents=True)
    return tmp_path


def test_this_machine_has_free_memory():
    assert memory.free_bytes(CPU) is None or memory.free_bytes(CPU) > 2**20


def test_free_memory_is_unknown_without_proc(system):
    assert memory.free_bytes(CPU) is None


@pytest.mark.parametrize(("limit", "free"), [("600000", 500_000), ("9000000", 1000 * 1024), ("max", 1000 * 1024)])
def test_free_memory_is_the_smaller_of_machine_and_container(system, limit, free):
    (system / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    1000 kB\n")
    (system / "sys" / "fs" / "cgroup" / "memory.current").write_text("100000")
    (system / "sys" / "fs" / "cgroup" / "memory.max").write_text(limit)
    assert memory.free_bytes(CPU) == free


def test_files_that_a_container_has_cached_are_free_memory(system):
    group = system / "sys" / "fs" / "cgroup"
    (group / "memory.max").write_text("600000\n")
    (group / "memory.current").write_text("550000\n")
    (group / "memory.stat").write_text("anon 40000\nfile 510000\ninactive_file 450000\nactive_file 60000\n")
    assert memory.free_bytes(CPU) == 500_000


@pytest.mark.skipif(memory.used_bytes(CPU) is None, reason="needs /proc")
def test_the_peak_exceeds_what_is_in_use_by_what_was_freed():
    if not memory.reset_peak(CPU):
        pytest.skip("the system does not reset the peak")
    before = memory.used_bytes(CPU)
    torch.ones(2**24)  # 64 MiB, freed at once
    assert memory.peak_bytes(CPU) - before > 0.9 * 2**26
