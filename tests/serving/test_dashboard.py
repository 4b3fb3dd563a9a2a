"""The Grafana dashboard and the guide name metrics that exist."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"umpteen_[a-z_]+")
ENDINGS = re.compile(r"_(bucket|count|sum)$")


@pytest.fixture
def existing(client):
    client.post("/v1/predict", json={"texts": "a"})
    client.post("/v1/predict", json={"texts": []})
    text = client.get("/metrics").text
    families = re.findall(r"^# TYPE (\S+)", text, re.M)
    # Connections are those of the server, which these tests do without.
    return {*families, "umpteen_connections"}


def dashboard_metrics():
    """Metrics that the dashboard names."""
    board = json.loads((ROOT / "docs" / "grafana" / "umpteen.json").read_text("utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return {ENDINGS.sub("", name) for query in queries for name in NAME.findall(query)}


def test_the_dashboard_shows_metrics_that_exist(existing):
    assert dashboard_metrics() <= existing
    assert len(dashboard_metrics()) >= 20


def test_the_guide_names_metrics_that_exist(existing):
    page = (ROOT / "docs" / "guide" / "monitoring.md").read_text("utf-8")
    assert set(NAME.findall(page)) <= existing


def test_model_and_build_are_labels_of_metrics(client):
    text = client.get("/metrics").text
    assert re.search(r'umpteen_model_info\{.*name="run".*state="active".*\} 1\.0', text)
    assert re.search(r'umpteen_build_info\{.*version="[\d.]+".*\} 1\.0', text)
    assert re.search(r"umpteen_unique_bytes \d", text)
