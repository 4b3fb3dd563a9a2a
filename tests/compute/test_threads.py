import pytest
import torch

from umpteen.compute.threads import cpu_threads, map_in_threads


def test_threads_are_given_back_also_after_an_error():
    before = torch.get_num_threads()
    with cpu_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(KeyError), cpu_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 10])
def test_items_come_in_their_order(threads, n, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert list(map_in_threads(lambda item: item * item, range(n))) == [i * i for i in range(n)]


@pytest.mark.parametrize("threads", [1, 3])
def test_whoever_stops_early_begins_few_more(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    begun = []
    results = map_in_threads(lambda item: begun.append(item) or item, range(1000))
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert len(begun) <= 2 + threads + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_an_item_is_raised(threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda item: 1 // item, [3, 0, 2]))
