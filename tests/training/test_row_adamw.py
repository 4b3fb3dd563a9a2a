import copy

import pytest
import torch

from umpteen.training import row_optimizer
from umpteen.training.optim import Optimizers
from umpteen.training.row_adamw import RowAdamW
from umpteen.training.row_optimizer import totals_by_entry

OPTIONS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def table(n=5, dim=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.Parameter(torch.randn(n, dim, generator=generator, dtype=torch.float64))


def sparse(rows, values, n=5):
    return torch.sparse_coo_tensor(
        torch.tensor([rows]), torch.as_tensor(values, dtype=torch.float64), (n, 3)
    )


def random_values(n, seed):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_touched_at_every_step_move_as_by_adamw(decay):
    ours, theirs = table(), table()
    options = {**OPTIONS, "weight_decay": decay}
    row_wise, dense = RowAdamW([ours], **options), torch.optim.AdamW([theirs], **options)
    for step in range(12):
        gradient = random_values(5, step)
        order = torch.randperm(5)
        ours.grad = sparse(order.tolist(), gradient[order])
        theirs.grad = gradient
        for optimizer in (row_wise, dense):
            optimizer.param_groups[0]["lr"] = 0.03 / (step + 1)  # as a schedule does
            optimizer.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_rows_without_a_gradient_do_not_move():
    ours = table()
    before = ours.detach().clone()
    optimizer = RowAdamW([ours], **OPTIONS)
    for step in range(4):
        ours.grad = sparse([1, 3], random_values(2, step))
        optimizer.step()
    assert torch.equal(ours[[0, 2, 4]], before[[0, 2, 4]])
    assert (ours[[1, 3]] != before[[1, 3]]).all()


def test_skipped_steps_follow_the_documented_expression():
    """Dense moments that see zeros in between; the weight moves only when touched."""
    ours = table()
    optimizer = RowAdamW([ours], **OPTIONS)
    weights = ours.detach().clone()
    mean, square = torch.zeros(5, 3).double(), torch.zeros(5, 3).double()
    last = [0] * 5
    plan = [[0, 1], [1], [1, 4], [0], [2, 1], [4, 0]]
    for step, rows in enumerate(plan, start=1):
        gradient = torch.zeros(5, 3, dtype=torch.float64)
        gradient[rows] = random_values(len(rows), step)
        ours.grad = sparse(rows, gradient[rows])
        optimizer.step()
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.95 * square + 0.05 * gradient**2
        for row in rows:
            for _ in range(step - last[row]):
                weights[row] = weights[row] * (1 - 0.03 * 0.1)
            last[row] = step
            corrected = (square[row] / (1 - 0.95**step)).sqrt() + 1e-6
            weights[row] = weights[row] - 0.03 * (mean[row] / (1 - 0.8**step)) / corrected
        torch.testing.assert_close(ours.detach(), weights, rtol=1e-12, atol=1e-14)


def test_repeated_rows_of_a_sparse_gradient_are_summed():
    ours, theirs = table(), table()
    first, second = RowAdamW([ours], **OPTIONS), RowAdamW([theirs], **OPTIONS)
    for step in range(3):
        values = random_values(3, step)
        ours.grad = sparse([2, 0, 2], values)
        theirs.grad = sparse([0, 2], torch.stack([values[1], values[0] + values[2]]))
        first.step()
        second.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)


def test_groups_have_rates_of_their_own():
    slow, fast = table(), table()
    optimizer = RowAdamW(
        [{"params": [slow], "lr": 0.0}, {"params": [fast], "lr": 0.1}], weight_decay=0.0
    )
    for parameter in (slow, fast):
        parameter.grad = sparse([1], random_values(1, 0))
    optimizer.step()
    assert torch.equal(slow, table())
    # The first step of Adam moves every entry by the rate, whatever the gradient's size.
    torch.testing.assert_close((fast - table())[1].abs(), torch.full((3,), 0.1).double())


def test_no_rows_and_no_gradient_are_no_step():
    ours = table()
    optimizer = RowAdamW([ours], **OPTIONS)
    optimizer.step()
    ours.grad = sparse([], torch.zeros(0, 3))
    optimizer.step()
    assert torch.equal(ours, table())


def test_a_restored_state_continues_and_counts_in_whole_numbers():
    """Steps kept in float32 would stop counting at 2^24."""
    ours = table()
    optimizer = RowAdamW([ours], **OPTIONS)
    for step in range(3):
        ours.grad = sparse([step], random_values(1, step))
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    twin = torch.nn.Parameter(ours.detach().clone())
    restored = RowAdamW([twin], **OPTIONS)
    restored.load_state_dict(saved)
    assert restored.state[twin]["touched"].dtype == torch.int32
    assert restored.state[twin]["touched"].tolist() == [1, 2, 3, 0, 0]
    for parameter, each in ((ours, optimizer), (twin, restored)):
        parameter.grad = sparse([1, 4], random_values(2, 9))
        each.step()
    assert torch.equal(ours, twin)
    assert saved["state"][0]["touched"].tolist() == [1, 2, 3, 0, 0]  # the caller's is untouched


def test_a_table_in_float32_counts_as_well():
    narrow = torch.nn.Parameter(torch.zeros(2, 3))
    optimizer = RowAdamW([narrow], **OPTIONS)
    narrow.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 3), (2, 3))
    optimizer.step()
    again = RowAdamW([narrow], **OPTIONS)
    again.load_state_dict(optimizer.state_dict())
    assert again.state[narrow]["touched"].dtype == torch.int32


def test_a_dense_gradient_moves_every_row_as_by_adamw(monkeypatch):
    # Blocks that do not divide 7.
    monkeypatch.setattr("umpteen.training.row_optimizer.ROWS_AT_ONCE", 3)
    torch.manual_seed(3)
    ours = torch.nn.Parameter(torch.randn(7, 4, dtype=torch.float64))
    theirs = torch.nn.Parameter(ours.detach().clone())
    options = {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.2}
    first, second = RowAdamW([ours], **options), torch.optim.AdamW([theirs], **options)
    for _ in range(5):
        gradient = torch.randn(7, 4, dtype=torch.float64)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        first.step()
        second.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [[3, 1, 3, 0, 1, 3], [4], [2, 0, 1], []])
def test_totals_found_without_waiting_equal_those_of_coalescing(rows):
    values = random_values(len(rows), 7)
    found, totals = totals_by_entry(torch.tensor(rows, dtype=torch.int64), values)
    expected = sparse(rows, values).to_dense()
    assert found.tolist() == sorted(rows)
    torch.testing.assert_close(totals, expected[found], rtol=1e-12, atol=0)


def test_a_step_of_repeated_rows_is_the_same_with_and_without_waiting(monkeypatch):
    plan = [[0, 1, 1], [4, 4, 4, 2], [1], [2, 0, 2]]
    results = []
    for waits in (True, False):
        monkeypatch.setattr(row_optimizer, "_may_wait", lambda gradient, waits=waits: waits)
        ours = table()
        optimizer = RowAdamW([ours], **OPTIONS)
        for step, rows in enumerate(plan):
            ours.grad = sparse(rows, random_values(len(rows), step))
            optimizer.step()
        results.append(ours.detach().clone())
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-14)


class Labels(torch.nn.Module):
    """Label vectors and nothing else."""

    neighbours = 0

    def __init__(self):
        super().__init__()
        self.label_vectors = table(6)

    def row_parameters(self):
        return [self.label_vectors]


def test_dense_adamw_moves_the_rows_without_a_gradient_too():
    """Label vectors under ``adamw-dense`` are those of torch's AdamW on the dense gradient."""
    model, twin = Labels(), table(6)
    rates = {"lr_encoder": 0.1, "lr_heads": 0.1, "lr_labels": 0.1, "weight_decay": 0.02}
    optimizers = Optimizers(model, label_optimizer="adamw-dense", **rates)
    expected = torch.optim.AdamW([twin], lr=0.1, weight_decay=0.02)
    for seed, rows in enumerate(([0, 2], [1], [2, 5])):
        gradient = sparse(rows, random_values(len(rows), seed), 6)
        model.label_vectors.grad, twin.grad = gradient, gradient.to_dense()
        optimizers.step(1.0, clip_norm=0.0)
        expected.step()
    torch.testing.assert_close(model.label_vectors, twin, rtol=1e-9, atol=1e-12)
