"""A run taken elsewhere: the table of exports, one file each."""

EXPORTS = {
    "lancedb": "umpteen.export.lance_labels:export",
    "onnx": "umpteen.export.onnx_model:export",
    "openvino": "umpteen.export.openvino_model:export",
    "parquet": "umpteen.export.parquet_labels:export",
    "pgvector": "umpteen.export.postgres_labels:export",
    "qdrant": "umpteen.export.qdrant_labels:export",
    "sentence-transformers": "umpteen.export.sentence_model:export",
}
"""Name to a function of a predictor, a place and options; returns what it wrote, in words."""
