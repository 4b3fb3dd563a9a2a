"""Encoders on packed tokens: time and peak memory of a pass, beside the padded ways.

    python -m bench training packed [--texts 4098] [--repeats 10]
        [--only distilbert minilm compiled pieces] [--out rows.json]

Rows, for a DistilBERT-sized and a MiniLM-sized network (12 layers of 384) with random weights, on
texts of 4 to 20 tokens, none of which repeats, forward and backward in training mode, dropout as
the networks have it, bfloat16 on a GPU and float32 elsewhere:
    padded to 32       the library's own code, one batch
    grouped            sorted by length, padded in a few groups, the library's own code
    packed             what TransformerEncoder does
    packed, planned    the same with the arrays made beforehand, as training does it
    packed, no kernels the same with torch's operations alone
Then the host's share: planning and, on a GPU, launching. ``compiled``, on a GPU: the padded way by
``torch.compile``, alone and with CUDA graphs;
``first s`` is what the first pass took. And
the kernels one by one (``pieces``), beside the plain expression. The floor is six times the weights
of all layers times the tokens, at 790 TFLOP/s, which large bfloat16 products reach on an H200; only
printed on a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

import numpy as np
import torch

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import best_device, is_cuda
from bench.training.packed_pieces import make_texts, piece_rows, timed

PRODUCTS_PER_SECOND = 790e12
NETWORKS = ("distilbert", "minilm")


def make_network(name: str):
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    if name == "distilbert":
        return DistilBertModel(DistilBertConfig())
    shape = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    return BertModel(BertConfig(num_hidden_layers=12, **shape), add_pooling_layer=False)


def casts(device: torch.device):
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def network_rows(name: str, n: int, repeats: int, device: torch.device) -> list[dict]:
    from umpteen.model.encoder import pad, to_device
    from umpteen.model.packed import packed_form
    from umpteen.model.packed_forward import encode_packed, lay_out_packed
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.types import Ragged

    tokens = make_texts(n)
    encoder = TransformerEncoder(make_network(name)).to(device).train()
    network = encoder.network
    above = torch.randn(n, encoder.dim, device=device)
    form = packed_form(network)
    laid_out = Ragged(tokens.ids, tokens.offsets, encoder.layout(tokens))
    longer = Ragged(
        np.concatenate([tokens.ids, np.ones(32, np.int32)]),
        np.concatenate([tokens.offsets, tokens.offsets[-1:] + 32]),
    )
    everyone = np.arange(n + 1)  # one text of 32 tokens more, so that all are padded to that

    def to_32():
        ids, mask = pad(longer, everyone, pad_id=0)
        mask = to_device(mask, device)
        hidden = network(input_ids=to_device(ids, device), attention_mask=mask.long())[0]
        weights = mask[:, :, None].float()
        return ((hidden.float() * weights).sum(1) / weights.sum(1))[:n]

    def plain():
        layout = lay_out_packed(form, tokens, fused=False)
        return encode_packed(form, layout, pooling="mean", training=True, fused=False)

    ways = {
        "padded to 32": to_32,
        "grouped": lambda: encoder._padded(tokens),
        "packed": lambda: encoder(tokens),
        "packed, planned": lambda: encoder(laid_out),
    }
    if device.type == "cuda":
        ways["packed, no kernels"] = plain

    weights = sum(p.numel() for key, p in network.named_parameters() if ".layer." in key)
    floor = 6e3 * weights * len(tokens.ids) / PRODUCTS_PER_SECOND
    rows = []
    for how, forward in ways.items():

        def step(forward=forward) -> None:
            network.zero_grad(set_to_none=True)
            with casts(device):
                vectors = forward()
            vectors.backward(above)

        milliseconds, peak = timed(step, repeats=repeats, device=device)
        work = f"{name}, {n:,} texts, {len(tokens.ids):,} tokens"
        rows.append({"work": work, "code": how, "ms": milliseconds, "peak_gib": peak})
        if device.type == "cuda":
            rows[-1]["floor_ms"] = floor
    rows += host_rows(name, encoder, tokens, laid_out, above, repeats, device)
    return rows


def compiled_rows(name: str, n: int, repeats: int) -> list[dict]:
    """What a compiler and graphs make of the same pass; a way that fails says so."""
    from umpteen.model.encoder import pad, to_device
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.types import Ragged

    device = torch.device("cuda")
    tokens = make_texts(n)
    encoder = TransformerEncoder(make_network(name)).to(device).train()
    above = torch.randn(n, encoder.dim, device=device)
    longer = Ragged(
        np.concatenate([tokens.ids, np.ones(32, np.int32)]),
        np.concatenate([tokens.offsets, tokens.offsets[-1:] + 32]),
    )
    ids, mask = (to_device(array, device) for array in pad(longer, np.arange(n + 1), pad_id=0))
    weights, mask = mask[:, :, None].float(), mask.long()
    laid_out = Ragged(tokens.ids, tokens.offsets, encoder.layout(tokens))

    def padded(network):
        hidden = network(input_ids=ids, attention_mask=mask)[0]
        return ((hidden.float() * weights).sum(1) / weights.sum(1))[:n]

    def stepping(forward):
        def step() -> None:
            encoder.network.zero_grad(set_to_none=True)
            with casts(device):
                vectors = forward()
            vectors.backward(above)

        return step

    def compiled(**options):
        network = torch.compile(encoder.network, **options)
        return stepping(lambda: padded(network))

    ways = {
        "packed, planned": lambda: stepping(lambda: encoder(laid_out)),
        "padded to 32, on the device": lambda: stepping(lambda: padded(encoder.network)),
        "padded to 32, compiled": lambda: compiled(dynamic=False),
        "padded to 32, compiled, graphs": lambda: compiled(mode="reduce-overhead", dynamic=False),
    }
    rows = []
    work = f"{name}, compiled"
    for how, make in ways.items():
        start = time.perf_counter()
        try:
            step = make()
            step()
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            took, peak = timed(step, repeats=repeats, device=device)
        except Exception as error:
            reason = str(error).strip().splitlines()[0][:120]
            print(f"{how} failed: {type(error).__name__}: {reason}")
            continue
        row = {"work": work, "code": how, "ms": took, "peak_gib": peak, "first_s": first}
        print(row, flush=True)  # a failed capture may end the process
        rows.append(row)
    return rows


def host_rows(name, encoder, tokens, laid_out, above, repeats, device) -> list[dict]:
    """What the host itself does: planning, and launching without waiting for the end."""
    took, _ = timed(lambda: encoder.layout(tokens), repeats=repeats, device=device)
    rows = [{"work": f"{name}, host", "code": "layout", "ms": took, "peak_gib": float("nan")}]
    if device.type != "cuda":
        return rows
    times = []
    for _ in range(repeats):
        encoder.network.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        start = time.perf_counter()
        with casts(device):
            vectors = encoder(laid_out)
        vectors.backward(above)
        times.append(1000 * (time.perf_counter() - start))
    took = statistics.median(times)
    return [
        *rows,
        {"work": f"{name}, host", "code": "launch", "ms": took, "peak_gib": float("nan")},
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--texts", type=int, default=4098)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=[*NETWORKS, "compiled", "pieces"])
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    device = best_device()
    wanted = args.only or [*NETWORKS, *(["compiled", "pieces"] if is_cuda(device) else [])]
    rows: list[dict] = []
    for name in wanted:
        if name == "pieces":
            rows += piece_rows(args.texts, args.repeats, device)
        elif name == "compiled":
            for network in NETWORKS:
                rows += compiled_rows(network, args.texts, args.repeats)
        else:
            rows += network_rows(name, args.texts, args.repeats, device)
    about = facts(device)
    print_facts(about)
    titles = {"work": "work", "code": "code", "ms": "ms", "peak_gib": "peak GiB"}
    print_rows(rows, {**titles, "floor_ms": "floor ms", "first_s": "first s"})
    save(args.out, rows, **about)
