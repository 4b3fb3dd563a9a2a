"""The update of rows: the kernel equals the plain expression, for every storage."""

from itertools import product

import pytest
import torch

from umpteen.compute.optim import row_update
from umpteen.compute.optim.quantization import rounding_key
from umpteen.compute.optim.row_update import RowTable, StepNumbers, plain_update_, update_rows_

STORAGES = list(product((torch.float32, torch.bfloat16), ("fp32", "int8")))
every_storage = pytest.mark.parametrize(("dtype", "moments"), STORAGES, ids=str)


def numbers(step, decay=0.1, lr=0.03):
    return StepNumbers(step, lr, (0.8, 0.95), 1e-6, decay, rounding_key(3, step))


def new_table(dtype, moments, n=11, dim=5, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(n, dim, generator=generator).to(dtype).to(device)
    return RowTable.new(vectors, moments=moments)


def gradients(rows, dim, step, device="cpu"):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, dim, generator=generator).to(device)


PLAN = [[0, 10, 4], [4], [7, 4, 1, 0], [2], [0, 4, 10]]


def run(update, table, plan=PLAN, **options):
    device = table.vectors.device
    for step, rows in enumerate(plan, start=1):
        chosen = torch.tensor(rows, device=device)
        values = gradients(len(rows), table.vectors.shape[1], step, device)
        update(table, chosen, values, numbers(step, **options), ids=chosen + 100)
    return table


def assert_same(found, expected):
    """Equal up to float32 rounding, and where it meets the rounding of codes, to one code."""
    assert torch.equal(found.touched, expected.touched)
    for name, part in expected.parts().items():
        ours, theirs = getattr(found, name).double(), part.double()
        assert getattr(found, name).dtype == part.dtype
        if part.dtype in (torch.int8, torch.uint8):
            assert (ours - theirs).abs().max() <= 1
            assert (ours != theirs).double().mean() < 0.05
        elif part.dtype == torch.bfloat16:
            torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=1e-3)
        else:
            torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=1e-6)


@every_storage
@pytest.mark.parametrize("dim", [5, 32, 1, 130])
def test_the_kernel_equals_the_plain_expression(dtype, moments, dim):
    kernel = kernel_in_interpreter()
    found = run(kernel, new_table(dtype, moments, dim=dim))
    assert_same(found, run(plain_update_, new_table(dtype, moments, dim=dim)))


@every_storage
def test_without_decay_too(dtype, moments):
    kernel = kernel_in_interpreter()
    found = run(kernel, new_table(dtype, moments), decay=0.0)
    assert_same(found, run(plain_update_, new_table(dtype, moments), decay=0.0))


def kernel_in_interpreter():
    pytest.importorskip("triton", reason="the extra gpu is not installed")
    import os

    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels run on the GPU here, see the gpu tests")
    from umpteen.compute.kernels.row_kernel import launch

    return launch


@every_storage
@pytest.mark.parametrize("update", ["plain", "kernel"])
def test_equal_neighbours_count_once(dtype, moments, update):
    apply = plain_update_ if update == "plain" else kernel_in_interpreter()
    values = gradients(3, 5, 1)
    once, thrice = new_table(dtype, moments), new_table(dtype, moments)
    rows = torch.tensor([2, 6, 9])
    apply(once, rows, values, numbers(1), ids=rows)
    again = torch.tensor([2, 6, 6, 6, 9, 9])
    apply(thrice, again, values[[0, 1, 1, 1, 2, 2]], numbers(1), ids=again)
    for name, part in once.parts().items():
        assert torch.equal(part, getattr(thrice, name)), name


@every_storage
@pytest.mark.parametrize("numbers_in_cache", [1, 10, 15])
def test_rows_are_updated_in_parts_to_the_same_bits(dtype, moments, numbers_in_cache, monkeypatch):
    monkeypatch.setattr(row_update, "NUMBERS_IN_CACHE", numbers_in_cache)
    found, expected = (new_table(dtype, moments) for _ in range(2))
    run(update_rows_, found)
    run(plain_update_, expected)
    for name, part in expected.parts().items():
        assert torch.equal(part, getattr(found, name)), name


@every_storage
def test_equal_neighbours_count_once_in_parts_too(dtype, moments, monkeypatch):
    monkeypatch.setattr(row_update, "NUMBERS_IN_CACHE", 10)
    values = gradients(3, 5, 1)
    once, thrice = new_table(dtype, moments), new_table(dtype, moments)
    rows = torch.tensor([2, 6, 9])
    plain_update_(once, rows, values, numbers(1), ids=rows)
    again = torch.tensor([2, 6, 6, 6, 9, 9])
    update_rows_(thrice, again, values[[0, 1, 1, 1, 2, 2]], numbers(1))
    for name, part in once.parts().items():
        assert torch.equal(part, getattr(thrice, name)), name


@every_storage
def test_a_row_is_updated_alike_in_any_company(dtype, moments):
    """What a table cut into parts, or fetched by rows, relies on."""
    whole, cut = new_table(dtype, moments), new_table(dtype, moments)
    rows, values = torch.tensor([8, 3, 0, 5]), gradients(4, 5, 1)
    plain_update_(whole, rows, values, numbers(1), ids=rows)
    fetched = cut.map(lambda part: part[rows].clone())
    some = torch.tensor([2, 0])
    plain_update_(fetched, some, values[some], numbers(1), ids=rows[some])
    for name, part in whole.parts().items():
        assert torch.equal(part[rows[some]], getattr(fetched, name)[some]), name


def test_no_rows_are_no_update():
    table = new_table(torch.float32, "fp32")
    nothing = torch.zeros(0, dtype=torch.int64)
    update_rows_(table, nothing, torch.zeros(0, 5), numbers(1))
    assert not table.touched.any()


def test_a_long_absence_decays_by_all_its_steps():
    """0.99999^100000 from a float32 of the base would be off by some 0.3 %."""
    table = new_table(torch.float32, "fp32")
    before = table.vectors.clone()
    rows = torch.tensor([1])
    plain_update_(table, rows, torch.zeros(1, 5), numbers(100_000, 1e-3, lr=1e-2), ids=rows)
    expected = before[1].double() * (1 - 1e-5) ** 100_000
    torch.testing.assert_close(table.vectors[1].double(), expected, rtol=2e-6, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_storage
@pytest.mark.parametrize("dim", [5, 256, 768])
def test_on_a_gpu_the_kernel_equals_the_plain_expression(dtype, moments, dim):
    from umpteen.compute.kernels.row_kernel import launch

    generator = torch.Generator().manual_seed(5)
    plan = [torch.randperm(301, generator=generator)[:n].tolist() for n in (300, 1, 77, 205)]
    found = run(launch, new_table(dtype, moments, n=301, dim=dim, device="cuda"), plan)
    expected = run(plain_update_, new_table(dtype, moments, n=301, dim=dim, device="cuda"), plan)
    assert_same(found, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_storage
def test_on_a_gpu_steps_neither_wait_nor_compile_again_and_repeat(dtype, moments):
    from umpteen.compute.kernels import row_kernel

    results = []
    for _ in range(2):
        table = new_table(dtype, moments, n=50, dim=64, device="cuda")
        rows = torch.arange(0, 50, 3, device="cuda")
        values = gradients(len(rows), 64, 1, "cuda")
        update_rows_(table, rows, values, numbers(1))
        device = torch.cuda.current_device()
        compiled = len(row_kernel._update.device_caches[device][0])
        torch.cuda.set_sync_debug_mode("error")
        try:
            for step in (2, 15, 16, 17, 100_000):
                update_rows_(table, rows, values, numbers(step, lr=1.0 / step))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert len(row_kernel._update.device_caches[device][0]) == compiled
        results.append(table)
    for name, part in results[0].parts().items():
        assert torch.equal(part, getattr(results[1], name)), name
