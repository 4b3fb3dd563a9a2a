"""The log: JSON lines, and repeated lines that are counted instead of written."""

import json
import logging

from umpteen.serving.logs import JsonLines, RepeatedLines


def record(message, created, **fields):
    made = logging.LogRecord("umpteen.serving", logging.INFO, "", 0, message, (), None)
    made.created = created
    if fields:
        made.fields = fields
    return made


def test_lines_of_a_kind_are_limited_and_the_rest_is_counted():
    limit = RepeatedLines(lines=3, seconds=10)
    written = [limit.filter(record("refused %s", 100 + n / 10)) for n in range(20)]
    assert written.count(True) == 3
    assert limit.filter(record("another", 101))
    later = record("refused %s", 111)
    assert limit.filter(later)
    assert json.loads(JsonLines().format(later))["dropped_before"] == 17


def test_requests_that_were_granted_are_always_written():
    limit = RepeatedLines(lines=3, seconds=10)
    assert all(limit.filter(record("request", 100, status=200)) for _ in range(50))
    refused = [limit.filter(record("request", 100, status=429)) for _ in range(50)]
    assert refused.count(True) == 3
    assert limit.filter(record("request", 100, status=401))  # another kind
