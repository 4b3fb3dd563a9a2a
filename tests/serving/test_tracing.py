"""Trace context in and out, and OpenTelemetry spans."""

import pytest

from umpteen.errors import ConfigError
from umpteen.serving.tracing import ENDPOINT, Tracer, read_trace

SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "header",
    [None, "", "nonsense", SENT[:-1], f"ff{SENT[2:]}", SENT.replace("00f067aa0ba902b7", "0" * 16),
     SENT.upper()],
)  # fmt: skip
def test_a_header_that_is_not_valid_is_no_trace(header):
    assert read_trace(header) is None


def test_each_request_is_a_part_of_its_own():
    first, second = read_trace(SENT), read_trace(SENT)
    assert first.trace_id == second.trace_id == SENT.split("-")[1]
    assert first.span_id != second.span_id
    assert read_trace(first.header).parent_id == first.span_id


def test_no_header_comes_back_where_none_was_sent(client):
    assert "traceparent" not in client.get("/v1/info").headers


def test_a_span_is_exported_with_the_callers_as_its_parent(serving, monkeypatch):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracer = Tracer(exporter)
    monkeypatch.setattr("umpteen.serving.app.Tracer", lambda: tracer)
    client = serving(otel=True)
    answer = client.post("/v1/predict", json={"texts": "a"}, headers={"traceparent": SENT})
    tracer._provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert span.name == "POST /v1/predict"
    assert f"{span.context.trace_id:032x}" == SENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == SENT.split("-")[2]
    assert span.attributes["http.response.status_code"] == 200
    assert answer.headers["traceparent"].split("-")[2] == f"{span.context.span_id:016x}"


def test_an_exporter_needs_an_address(monkeypatch):
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.delenv(ENDPOINT, raising=False)
    with pytest.raises(ConfigError, match=ENDPOINT):
        Tracer()
