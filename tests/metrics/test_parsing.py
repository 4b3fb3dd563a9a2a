import re

import pytest

from umpteen.errors import ConfigError
from umpteen.metrics import DEFAULT_METRICS, parse, parse_all


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("ndcg@5", "nDCG@5"),
        ("psp@3", "PSP@3"),
        ("PSP5", "PSP@5"),
        ("recall@10", "R@10"),
        ("Precision@1", "P@1"),
        ("mrr", "MRR"),
        ("MacroF@5", "MacroF1"),
    ],
)
def test_a_misspelt_metric_is_told_the_nearest(text, nearest):
    with pytest.raises(ConfigError, match=re.escape(f"Did you mean {nearest!r}?")):
        parse(text)


def test_all_bad_names_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_all(["P@1", "Pp@1", "R", "zzz@3", "P@0"])
    message = str(caught.value)
    for part in ("'Pp@1'", "'R' needs a k", "'zzz@3'", "k = 0"):
        assert part in message
    assert "'P@1' is" not in message


@pytest.mark.parametrize("text", ["", "@5", "P@", "P@-1", "P@1.5", "P@five", "P@1@2", "p"])
def test_text_that_is_no_metric_is_refused(text):
    with pytest.raises(ConfigError, match="not known"):
        parse(text)


def test_spaces_and_leading_zeros_do_not_make_another_metric():
    assert parse(" P@05 ") == parse("P@5")


def test_a_metric_of_your_own_needs_no_row():
    assert str(parse("umpteen.metrics.precision:Precision@7")) == "P@7"
    with pytest.raises(ConfigError, match="cannot be loaded"):
        parse("umpteen.metrics.precision:Nothing@7")


class Always:
    def mean(self, hits):
        return 1.0


def test_a_metric_without_k_refuses_one():
    name = f"{__name__}:Always"
    assert parse(name).mean(None) == 1.0
    with pytest.raises(ConfigError, match="takes no k"):
        parse(f"{name}@5")


def test_every_default_metric_is_known():
    assert [str(metric) for metric in parse_all(DEFAULT_METRICS)] == list(DEFAULT_METRICS)
    for k in (1, 3, 5):
        for name in ("P", "nDCG", "PSP", "PSnDCG"):
            assert f"{name}@{k}" in DEFAULT_METRICS
