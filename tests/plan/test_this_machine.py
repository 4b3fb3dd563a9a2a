"""The machine of a plan: its memory and rates."""

import pytest
import torch

from umpteen.plan import MACHINES
from umpteen.plan.this_machine import host_memory, known_gpu, this_machine


@pytest.mark.parametrize(
    ("name", "memory", "expected"),
    [
        ("NVIDIA H200", 150e9, "h200"),
        ("NVIDIA H100 80GB HBM3", 85e9, "h100"),
        ("NVIDIA A100-SXM4-80GB", 85e9, "a100"),
        ("NVIDIA A100-PCIE-40GB", 42e9, "a100-40"),
        ("NVIDIA GeForce RTX 4090", 25e9, "rtx4090"),
        ("NVIDIA RTX A6000", 51e9, "a6000"),
    ],
)
def test_a_gpu_is_found_by_its_own_name(name, memory, expected):
    assert known_gpu(name, memory) is MACHINES[expected]


def test_a_gpu_that_is_not_in_the_table_is_not_guessed():
    assert known_gpu("NVIDIA GeForce GTX 1080", 8e9) is None


def test_the_cpu_has_this_machines_memory_and_measured_rates():
    found = this_machine("cpu")
    assert not found.is_gpu
    assert found.memory == host_memory()
    # Far apart from nothing and from what no CPU reaches; other load makes rates lower.
    assert 1e8 < found.products < 1e15
    assert 1e7 < found.bandwidth < 1e14


def test_memory_is_that_of_the_container_where_it_is_smaller(monkeypatch, tmp_path):
    whole = host_memory()
    limit, word = tmp_path / "limit", tmp_path / "word"
    limit.write_text("1048576\n")
    word.write_text("max\n")
    monkeypatch.setattr("umpteen.plan.this_machine.CGROUP_LIMITS", (str(word),))
    assert host_memory() >= whole
    monkeypatch.setattr("umpteen.plan.this_machine.CGROUP_LIMITS", (str(word), str(limit)))
    assert host_memory() == 1 << 20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_its_own_memory():
    about = torch.cuda.get_device_properties(0)
    assert this_machine().memory == about.total_memory
