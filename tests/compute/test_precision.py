import pytest
import torch

from umpteen.compute.precision import (
    at_least_float32,
    autocast,
    choose_device,
    choose_precision,
    require_eight_bits,
)
from umpteen.errors import ConfigError

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_auto_takes_bfloat16_on_a_gpu_alone():
    assert choose_precision("auto", GPU) == "bf16"
    assert choose_precision("auto", CPU) == "fp32"
    assert choose_precision("fp32", GPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    assert choose_device("cpu") == CPU
    with pytest.raises(ConfigError, match="no GPU on this machine; use --device cpu"):
        choose_device("cuda")


def test_eight_bits_are_refused_on_a_gpu_without_them_alone(monkeypatch):
    require_eight_bits(CPU, "batches.search=float8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    require_eight_bits(GPU, "batches.search=float8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ConfigError, match=r"search=float8: .* capability is 8.0, it takes 8.9"):
        require_eight_bits(GPU, "batches.search=float8")


def test_a_gpu_that_is_there_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == GPU


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_autocast_sets_the_dtype_of_products_and_leaves_weights(precision, dtype):
    linear = torch.nn.Linear(3, 2)
    with autocast(precision, CPU):
        assert linear(torch.randn(4, 3)).dtype == dtype
    assert linear.weight.dtype == torch.float32
    assert linear(torch.randn(4, 3)).dtype == torch.float32


def test_at_least_float32_raises_half_precision_and_keeps_the_rest():
    for given, wanted in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        assert at_least_float32(torch.ones(2, dtype=given)).dtype == wanted
