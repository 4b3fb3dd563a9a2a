"""What must hold of a plan whatever its constants: more is more, shares are shares."""

import dataclasses
import json
import math

import numpy as np
import pytest

from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.plan import MACHINES, Job, estimate, exchange, find_encoder, find_machine, formulas
from umpteen.plan.encoders import ENCODER_SHAPES
from umpteen.plan.estimate import ALWAYS, BETWEEN_STEPS, IN_A_STEP, peak_bytes
from umpteen.plan.from_data import heaps_law
from umpteen.plan.machines import GIB

H200 = MACHINES["h200"]
BASE = Job(labels=100_003, queries=200_001, encoder=ENCODER_SHAPES["distilbert"])
JOBS = {
    "unidec": BASE,
    "depsl": dataclasses.replace(BASE, classifier=False),
    "renee": dataclasses.replace(BASE, dual=False, scope="all", clustered=False),
    "dexml": dataclasses.replace(BASE, classifier=False, scope="all", clustered=False),
    "bank": dataclasses.replace(BASE, scope="bank"),
    "frozen": dataclasses.replace(BASE, frozen=True),
    "frugal": dataclasses.replace(BASE, encoder=ENCODER_SHAPES["bag"], bf16=False),
    "two GPUs": dataclasses.replace(BASE, gpus=2),
    "on the host": dataclasses.replace(BASE, label_device="host", label_storage="bf16"),
    "capped": dataclasses.replace(BASE, max_labels=1000),
}
each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@each_job
@pytest.mark.parametrize(
    "more",
    [
        {"labels": 200_006},
        {"queries": 400_002},
        {"dim": 512},
        {"batch": 1024},
        {"tokens": 24.0},
        {"encoder": ENCODER_SHAPES["bert-large"]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_more_of_anything_takes_no_less_memory_and_time(job, more):
    small, large = estimate(job, H200), estimate(dataclasses.replace(job, **more), H200)
    assert large.peak_bytes >= small.peak_bytes
    for name, value in small.host_bytes.items():
        assert large.host_bytes[name] >= value, name
    steps = math.ceil(job.queries / job.batch)
    more_steps = math.ceil(large.job.queries / large.job.batch)
    if more_steps >= steps:
        assert large.seconds["epoch"] >= small.seconds["epoch"]
    assert large.seconds["step"] >= small.seconds["step"]


@each_job
def test_the_parts_are_what_is_held(job):
    plan = estimate(job, H200)
    always = sum(plan.device_bytes.get(name, 0) for name in ALWAYS)
    step = sum(plan.device_bytes.get(name, 0) for name in IN_A_STEP)
    between = max(plan.device_bytes.get(name, 0) for name in BETWEEN_STEPS)
    assert plan.peak_bytes == pytest.approx((always + max(step, between)) * formulas.SLACK)
    assert all(value > 0 for value in plan.device_bytes.values())
    steps = math.ceil(job.queries / job.batch)
    share = plan.seconds["refresh"] / job.refresh_epochs
    assert plan.seconds["epoch"] == pytest.approx(steps * plan.seconds["step"] + share)
    assert plan.seconds["run"] == pytest.approx(job.epochs * plan.seconds["epoch"])


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_gpus_divide_the_label_table_and_the_work(gpus):
    one, several = BASE, dataclasses.replace(BASE, gpus=gpus)
    for part in (formulas.label_vectors, formulas.label_moments):
        assert part(several) == pytest.approx(part(one) / gpus, rel=1e-4)
        assert part(several) * gpus >= part(one)  # no row is lost
    assert formulas.activations(several) == pytest.approx(formulas.activations(one) / gpus)
    assert formulas.encoder_states(several) == formulas.encoder_states(one)  # everyone has it all
    assert formulas.step_seconds(several, H200) > formulas.step_seconds(one, H200) / gpus


def test_a_doubled_batch_doubles_what_belongs_to_it():
    double = dataclasses.replace(BASE, batch=1024)
    assert formulas.pool_labels(double) == pytest.approx(2 * formulas.pool_labels(BASE), abs=1)
    assert formulas.activations(double) == pytest.approx(2 * formulas.activations(BASE), rel=1e-3)
    assert formulas.scores(double) == pytest.approx(4 * formulas.scores(BASE), rel=1e-3)
    assert formulas.label_vectors(double) == formulas.label_vectors(BASE)


def test_a_pool_has_no_more_labels_than_there_are():
    few = dataclasses.replace(BASE, labels=40)
    assert formulas.pool_labels(few) == 40
    assert formulas.pool_labels(dataclasses.replace(BASE, max_labels=77)) == 77
    assert formulas.pool_labels(dataclasses.replace(BASE, drawn=1, min_labels=9000)) == 9000
    assert formulas.pool_labels(dataclasses.replace(BASE, scope="all")) == BASE.labels


def test_label_tables_take_what_the_optimizer_holds():
    import torch

    from umpteen.training.row_adamw import RowAdamW

    for storage, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for moments in ("fp32", "int8"):
            job = dataclasses.replace(
                BASE, labels=7, dim=33, positives=2.0, label_storage=storage, label_moments=moments
            )
            table = torch.nn.Parameter(torch.zeros(7, 33, dtype=kind))
            optimizer = RowAdamW([table], moments=moments)
            table.grad = torch.ones_like(table)
            optimizer.step()
            held = [v for v in optimizer.state[table].values() if isinstance(v, torch.Tensor)]
            assert formulas.label_vectors(job) == table.nbytes
            assert formulas.label_moments(job) == sum(tensor.nbytes for tensor in held)


def test_a_table_on_the_host_is_there_and_visits_the_device():
    there = dataclasses.replace(BASE, label_device="host")
    whole = formulas.label_vectors(BASE) + formulas.label_moments(BASE)
    assert formulas.host_table(there) == whole
    assert formulas.host_table(BASE) == 0
    assert formulas.label_vectors(there) == 3 * formulas.pool_labels(BASE) * BASE.dim * 4
    assert peak_bytes(there, H200) < peak_bytes(BASE, H200)


def test_encoder_weights_are_those_of_the_network(tiny_bert):
    """All but biases and norms, which are few."""
    from transformers import AutoModel

    shape = find_encoder(str(tiny_bert))
    network = AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    matrices = [p for name, p in network.named_parameters() if p.ndim == 2]
    types = network.embeddings.token_type_embeddings.weight.numel()
    total = sum(p.numel() for p in matrices) - types
    assert shape.product_weights + shape.table_weights == total


def test_known_shapes_have_their_known_sizes():
    millions = {
        name: (shape.product_weights + shape.table_weights) / 1e6
        for name, shape in ENCODER_SHAPES.items()
    }
    assert millions["distilbert"] == pytest.approx(66, abs=1)
    assert millions["minilm"] == pytest.approx(22.5, abs=0.5)
    assert millions["bert-base"] == pytest.approx(109, abs=1)
    assert ENCODER_SHAPES["distilbert"].product_weights == pytest.approx(42.5e6, rel=0.01)


def test_a_large_step_takes_what_was_counted_by_hand():
    """1,098 queries and 3,000 labels of 12 tokens: 5 passes over (tokens, 768) in each layer."""
    job = dataclasses.replace(
        BASE, labels=1_305_265, queries=2_248_619, batch=1098, max_labels=3000
    )
    tokens = 4098 * 12
    assert formulas.step_tokens(job) == tokens
    assert tokens * formulas.token_bytes(job) == 6 * 5 * tokens * 768 * 2
    held = sum(formula(job) for formula in (ALWAYS | IN_A_STEP).values())
    assert held * formulas.SLACK / GIB == pytest.approx(9.2, abs=0.8)


def test_labels_to_search_are_counted_between_steps():
    """Both heads' vectors, one head's again, and that in bfloat16; or blocks, from the host."""
    many = dataclasses.replace(BASE, labels=10_000_000, mined=0, clustered=False)
    held = sum(formula(many) for formula in ALWAYS.values())
    table = many.labels * many.dim
    assert estimate(many, H200).peak_bytes > (held + 14 * table) * formulas.SLACK
    one = dataclasses.replace(many, dual=False)
    assert formulas.validation_buffers(one) < 7 * table
    there = dataclasses.replace(many, label_device="host")
    assert formulas.validation_buffers(there) < 6 * table
    assert estimate(there, H200).host_bytes["label vectors to search"] == 8 * table
    assert "label vectors to search" not in estimate(many, H200).host_bytes
    several = dataclasses.replace(many, gpus=4)  # each searches its own labels
    scores = 2 * GIB
    whole = formulas.validation_buffers(many) - scores
    assert formulas.validation_buffers(several) == pytest.approx(whole / 4 + scores)


def test_devices_that_exchange_more_or_over_slower_links_take_longer():
    two, four = (dataclasses.replace(BASE, gpus=gpus) for gpus in (2, 4))
    weights = BASE.encoder.product_weights + BASE.encoder.table_weights
    sent = [estimate(job, H200).exchanged_bytes["step"] for job in (two, four)]
    assert 4 * weights < sent[0] < 1.2 * 4 * weights  # of a sum over two, each sends half twice
    assert sent[1] / sent[0] == pytest.approx(1.5, rel=0.05)
    slow = dataclasses.replace(H200, link=10e9)
    for name in ("step", "refresh"):
        took = [estimate(two, machine).seconds[name] for machine in (slow, H200)]
        size = estimate(two, H200).exchanged_bytes[name]
        assert took[0] - took[1] == pytest.approx(size / 10e9 - size / H200.link)
    assert not estimate(BASE, H200).exchanged_bytes
    assert estimate(BASE, slow).seconds == estimate(BASE, H200).seconds
    many = dataclasses.replace(two, labels=100_000_000)
    assert exchange.refresh_bytes(many) < 4 * many.labels * many.dim  # no label vector travels


@pytest.mark.parametrize(("words", "exponent"), [(5_000, 0.3), (3_000, 0.5), (60_000, 0.9)])
def test_the_law_of_a_data_set_counts_the_different_words_of_its_batches(words, exponent):
    rng = np.random.default_rng(0)

    def text(topic, length):
        drawn = (words * rng.random(length) ** (1 / exponent)).astype(int)
        own = np.where(rng.random(length) < 0.3, drawn % 20 + 20 * topic, drawn)
        return " ".join(f"W{n}" for n in own)

    n_labels = 40
    names = {f"l{label}": text(label, 4) for label in range(n_labels)}
    topics = rng.integers(n_labels, size=2_003)
    texts = [text(topic, 31) for topic in topics.tolist()]
    data = Dataset.from_lists(texts, [[f"l{topic}"] for topic in topics], label_texts=names)
    factor, power = heaps_law(data, text="all", max_tokens=24)
    for n_texts in (97, 501):
        some = np.argsort(topics, kind="stable")[:n_texts]
        batch = [texts[row].split()[:24] for row in some]
        batch += [names[f"l{topic}"].split() for topic in set(topics[some].tolist())]
        counted = len({word for own in batch for word in own})
        assert factor * sum(map(len, batch)) ** power == pytest.approx(counted, rel=0.25)


def test_few_texts_have_a_law_too():
    few = Dataset.from_lists(["a red apple", "a pear"], [["apple"], []])
    factor, power = heaps_law(few, text="all", max_tokens=8)
    assert factor * 4**power == pytest.approx(3, rel=0.1)  # a, red, apple, apple
    empty = Dataset.from_lists(["", ""], [["1"], ["1"]], label_texts={"1": ""})
    assert heaps_law(empty, text="title", max_tokens=8)[0] >= 0


def test_a_sum_of_a_frugal_gradient_grows_with_the_different_words():
    few = dataclasses.replace(JOBS["frugal"], gpus=2, vocabulary=(10.0, 0.4))
    many = dataclasses.replace(few, vocabulary=(1.4, 0.94))
    assert exchange.step_bytes(few) < exchange.step_bytes(many)
    other = dataclasses.replace(few, encoder=ENCODER_SHAPES["minilm"])
    known = dataclasses.replace(other, vocabulary=many.vocabulary)
    assert exchange.step_bytes(other) == exchange.step_bytes(known)  # its gradients are dense


def test_a_refresh_takes_at_least_its_products_and_more_with_more_to_mine():
    encoding = formulas.encode(BASE, BASE.queries + BASE.labels, 1)
    products = encoding + 2.0 * BASE.queries * BASE.labels * BASE.dim
    whole = formulas.refresh_seconds(BASE, H200)
    assert whole > products / formulas.reached(BASE, H200)
    assert formulas.refresh_seconds(dataclasses.replace(BASE, mined=300), H200) > whole
    assert formulas.refresh_seconds(dataclasses.replace(BASE, mined=0), H200) < whole


def test_against_all_labels_one_chunk_goes_backward_at_a_time():
    job = dataclasses.replace(BASE, classifier=False, scope="all", chunk_tokens=8192)
    assert formulas.backward_tokens(job) == 8192 < formulas.step_tokens(job) == 512 * 12 + 8192
    assert formulas.backward_tokens(BASE) == formulas.step_tokens(BASE)


def test_what_fits_gets_no_advice_and_what_does_not_gets_what_helps():
    large = dataclasses.replace(BASE, labels=5_000_000, queries=1_000_000, dim=768)
    assert estimate(large, MACHINES["h200"]).advice == []
    small = find_machine("h200", memory_gib=60)
    plan = estimate(large, small)
    assert not plan.fits
    assert plan.advice[0] == "--set train.label_moments=int8"
    helped = dataclasses.replace(large, label_moments="int8")
    assert peak_bytes(helped, small) <= small.memory or len(plan.advice) > 1


@pytest.mark.parametrize("place", ["device", "host"])
def test_advice_is_what_training_accepts(place):
    """Several devices only where it takes several, and never with label vectors on the host."""
    seen = set()
    long = {"encoder": ENCODER_SHAPES["bert-large"], "tokens": 512.0, "batch": 100}
    sizes = [{"labels": n} for n in (10**6, 10**7, 3 * 10**7, 10**8, 10**9)]
    for size in (*sizes, {**long, "min_labels": 1000}):
        for alone, movable in ((False, True), (False, False), (True, True), (True, False)):
            job = dataclasses.replace(
                BASE, label_device=place, alone=alone or place == "host", movable=movable, **size
            )
            said = " ".join(estimate(job, MACHINES["h100"]).advice)
            several, host = "GPUs" in said, "label_device=host" in said
            assert not (several and job.alone)
            assert not (host and not movable)
            assert not (host and several)
            seen |= {"several"} if several else {"host"} if host else set()
    assert seen == ({"several", "host"} if place == "device" else set())


def test_advice_is_not_given_where_nothing_helps():
    huge = dataclasses.replace(BASE, labels=10**10, dim=1024)
    plan = estimate(huge, find_machine("h200", memory_gib=1))
    assert not plan.fits
    assert plan.advice == []


@each_job
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_every_job_has_a_plan_on_every_machine(job, machine):
    plan = estimate(job, machine)
    assert 0 < plan.seconds["step"] < plan.seconds["epoch"] < math.inf
    assert plan.fits == (plan.peak_bytes <= machine.memory)
    assert json.loads(json.dumps(plan.as_json()))["labels_in_a_step"] == plan.pool


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("distilbert-base-uncased", "distilbert"),
        ("sentence-transformers/all-MiniLM-L6-v2", "minilm"),
        ("microsoft/MiniLM-L12-H384-uncased", "minilm-12"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("FacebookAI/roberta-base", "roberta-base"),
        ("bag", "bag"),
    ],
)
def test_hub_names_are_understood(name, expected):
    assert find_encoder(name) is ENCODER_SHAPES[expected]


def test_bad_input_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="'distlbert' is not known.*Did you mean 'distilbert'"):
        find_encoder("distlbert")
    with pytest.raises(ConfigError, match="'h20' is not known.*Did you mean 'h200'"):
        find_machine("h20")
    with pytest.raises(ConfigError, match="--memory must be above 0 GiB, not -1"):
        find_machine("h200", memory_gib=-1)
    for name in ("labels", "queries", "dim", "gpus", "tokens", "batch"):
        with pytest.raises(ConfigError, match=f"--{name} must be above 0, not 0"):
            dataclasses.replace(BASE, **{name: 0})
    with pytest.raises(ConfigError, match="more labels of a query than --labels 3"):
        dataclasses.replace(BASE, labels=3)
    with pytest.raises(ConfigError, match="config.json"):
        find_encoder(str(tmp_path))
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    with pytest.raises(ConfigError, match="does not say the encoder's sizes"):
        find_encoder(str(tmp_path))
