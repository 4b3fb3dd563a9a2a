"""The time from one text to its labels on one thread, and where it goes.

    python -m bench search latency RUN DATA [--split test] [--head combined] [-k 10]
        [--texts 1000] [--factory HNSW32_SQ8,RFlat IVF1024,Flat] [--effort 64 128] [--cpu-time]
    python -m bench search latency ENCODER DATA --untrained

For the exact index and for faiss indexes built on the spot: the median and the 95th percentile of
one `Predictor.predict` of one text, its parts (tokens, encoder, search), and the share of the exact
top k that comes back. --cpu-time counts this thread's time alone, for a machine that is not idle.
--untrained takes a Hugging Face folder and puts two heads of 256 on it: time does not depend on
what they have learnt. Titles are read, and label vectors are both heads' of the label titles.
"""

import argparse
import time
from functools import partial

import numpy as np
import torch

from bench.common.tables import Table
from bench.common.timing import each
from bench.serving.untrained_run import untrained
from umpteen import Predictor, load_dataset
from umpteen.index.exact import ExactIndex
from umpteen.index.faiss_index import FaissIndex


def milliseconds(function, inputs, now=time.perf_counter):
    """Of one call for each input."""
    return 1000 * np.array(each(function, inputs, clock=now))


def indexes(given, vectors):
    yield "exact", ExactIndex.build(vectors)
    for factory in given.factory:
        for effort in given.effort:
            option = {"nprobe": effort} if factory.startswith("IVF") else {"ef_search": effort}
            index = FaissIndex.build(vectors, factory=factory, **option)
            yield f"{factory} {effort}", index


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run")
    parser.add_argument("data")
    parser.add_argument("--split", default="test")
    parser.add_argument("--head")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument(
        "--factory", nargs="*", default=["HNSW32_SQ8,RFlat", "HNSW32", "IVF1024,Flat"]
    )
    parser.add_argument("--effort", nargs="*", type=int, default=[128])
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--untrained", action="store_true")


def main(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    now = time.thread_time if given.cpu_time else time.perf_counter
    data = load_dataset(given.data)
    if given.untrained:
        parts, counts = untrained(given.run, data), np.zeros(len(data.labels), np.int64)
        predictor = Predictor(*parts[:3], data.labels, parts[3], counts)
    else:
        predictor = Predictor.load(given.run, device="cpu", with_indexes=False)
    head = given.head or predictor.vector_heads[-1]
    texts = list(data[given.split].texts(predictor.text_config.text)[: given.texts])
    table_of_labels = torch.as_tensor(predictor.label_vectors.numpy(head))
    columns = predictor.label_vectors.columns[head]
    milliseconds(predictor.vectors, [[text] for text in texts[:50]])
    encode = np.median(milliseconds(predictor.vectors, [[text] for text in texts], now))
    vectors = predictor.vectors(texts)[:, columns]
    wanted = ExactIndex.build(table_of_labels).search(vectors, given.k).rows
    print(
        f"{len(predictor.labels):,} labels of {vectors.shape[1]}, {len(texts)} texts, k {given.k}"
    )
    print(f"tokens and encoder: p50 {encode:.3f} ms")
    table = Table(["index", "p50 ms", "p95 ms", "search ms", "recall"], 4)
    for name, index in indexes(given, table_of_labels):
        predictor.label_vectors.use_index(head, index)
        search = np.median(milliseconds(partial(index.search, k=given.k), vectors.split(1), now))
        whole = milliseconds(lambda text: predictor.predict(text, given.k, head=head), texts, now)
        found = index.search(vectors, given.k).rows
        hits = (found[:, :, None] == wanted[:, None, :]) & (wanted[:, None, :] >= 0)
        share = hits.sum() / (wanted >= 0).sum()
        low, high = np.percentile(whole, [50, 95])
        table.add(name, *map(float, (low, high, search, share)))
