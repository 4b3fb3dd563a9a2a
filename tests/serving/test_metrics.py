"""Prometheus metrics: the text format, sums over processes, and failures that stay inside."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from umpteen.serving.metrics import MULTIPROCESS_VARIABLE, ServiceMetrics


def values(text):
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_histograms_and_gauges_are_in_the_text_format():
    metrics = ServiceMetrics()
    metrics.add("texts_total", 3)
    metrics.add("rejected_total", code="429")
    metrics.observe("batch_texts", 5)
    metrics.gauge("labels", "Labels.", lambda: 7)
    found = values(metrics.render())
    assert found["umpteen_texts_total", ()] == 3
    assert found["umpteen_rejected_total", (("code", "429"),)] == 1
    assert found["umpteen_batch_texts_bucket", (("le", "4.0"),)] == 0
    assert found["umpteen_batch_texts_bucket", (("le", "8.0"),)] == 1
    assert found["umpteen_batch_texts_sum", ()] == 5
    assert found["umpteen_labels", ()] == 7


def test_two_applications_do_not_share_their_counts():
    one, other = ServiceMetrics(), ServiceMetrics()
    one.add("texts_total")
    assert values(other.render())["umpteen_texts_total", ()] == 0


def test_what_cannot_be_recorded_raises_nothing():
    def broken():
        raise OSError("no such file")

    metrics = ServiceMetrics()
    metrics.add("no_such_counter")
    metrics.add("rejected_total", wrong="label")
    metrics.observe("no_such_histogram", 1.0)
    metrics.gauge("broken", "Fails.", broken)
    metrics.gauge("labels", "Labels.", lambda: 7)
    assert values(metrics.render())["umpteen_labels", ()] == 7


@pytest.mark.processes
def test_counts_of_processes_are_summed(tmp_path):
    code = (
        "import sys; from umpteen.serving.metrics import ServiceMetrics\n"
        "metrics = ServiceMetrics(sys.argv[1])\n"
        "metrics.add('texts_total', int(sys.argv[2]))\n"
        "metrics.observe('request_seconds', 0.03, route='/v1/predict')\n"
        "print(metrics.render())"
    )
    environment = {**os.environ, MULTIPROCESS_VARIABLE: str(tmp_path)}
    for amount in ("3", "4"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), amount],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    found = values(done.stdout)
    assert found["umpteen_texts_total", ()] == 7
    assert found["umpteen_request_seconds_count", (("route", "/v1/predict"),)] == 2


def test_facts_of_nothing_are_left_out():
    metrics = ServiceMetrics()
    metrics.info("model_info", "Loaded models.", lambda: [])
    metrics.info("build_info", "The build.", lambda: [{"version": "1"}])
    found = values(metrics.render())
    assert found[("umpteen_build_info", (("version", "1"),))] == 1.0
    assert not [name for name, _ in found if name == "umpteen_model_info"]
