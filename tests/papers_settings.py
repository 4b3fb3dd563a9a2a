"""What the papers and their codes state for a data set and a preset, to hold our files against.

Written from the sources, not from our files. [T]: Kharbanda, Compute Efficient Extreme Multi-Label
Classification (thesis, 2024), chapter 2. [U1]: UniDEC's first version, and [UC] its code. [DC]:
DEXML's configurations. [NC]: NGAME's configurations. [RC]: Renee's published training commands.
"""

UNIDEC = {
    # [T] section 2.4 and [U1] section 4: rates of encoder, heads and label vectors; 150 epochs;
    # refreshed every five; cosine after a warm-up.
    "train.lr_encoder": 1e-4,
    "train.lr_heads": 2e-4,
    "train.epochs": 150,
    "batches.refresh_epochs": 5,
    "train.schedule": "cosine",
    "model.dropout": 0.1,
    # [UC]: weight decay, three epochs of warm-up, a learned multiplier that starts at 18.
    "train.weight_decay": 0.05,
    "train.warmup": 3 / 150,
    "model.learn_temperatures": True,
    "model.dual_temperature": 1 / 18,
    "encoder.name": "sentence-transformers/msmarco-distilbert-base-v4",
    "encoder.pooling": "mean",
}
CLASSIFIER = {
    "train.lr_labels": 1e-3,  # [T] section 2.4
    "model.share_temperature": True,  # [UC]: of both losses
    "model.label_dropout": 0.1,  # [UC]
    "loss.classifier_forward": 0.5,  # [T] section 2.3.3
    "loss.dual_share": 0.5,  # [UC]
}
DEXML = {
    # [DC], all data: first token, no dropout on it, 768; AdamW, a tenth of warm-up, then a line.
    "encoder.name": "distilbert-base-uncased",
    "encoder.pooling": "first",
    "model.dim": 768,
    "model.dropout": 0.0,
    "train.epochs": 100,
    "train.weight_decay": 0.01,
    "train.warmup": 0.1,
    "train.schedule": "linear",
    "model.normalize": True,
    "model.dual_temperature": 0.05,
    "model.projection": "none",  # [DC]: bottleneck_dim 0
}
# [DC], LF-AmazonTitles-1.3M and LF-Wikipedia-500K: vectors as they are.
FREE = {"model.normalize": False, "model.dual_temperature": 1.0}
NGAME = {
    # [NC], all data: no decay is stated, and its code's default is 0; 100 steps of warm-up, then a
    # line. Its code multiplies the logits of negatives outside the margin with 0.
    "model.dim": 768,
    "model.projection": "none",
    "model.dual_temperature": 1.0,
    "train.lr_encoder": 2e-4,
    "train.schedule": "linear",
    "loss.dual": "triplet",
    "loss.dual_options": {
        "margin": 0.3,
        "n_negatives": 10,
        "temperature": 0.1,
        "outside_margin": "zero",
    },
    "train.weight_decay": 0.0,
    "batches.cluster_size": 1,
    "batches.refresh_epochs": 5,
    "train.epochs": 300,
}
RENEE = {
    # [RC], all data: label texts as rows, 768, cosine; SGD and a normal start of 0.02 in its code.
    "augment.method": "self",
    "model.dim": 768,
    "model.projection": "none",
    "model.label_init": "random",
    "train.label_optimizer": "sgd",
    "train.epochs": 100,
    "train.schedule": "cosine",
    "loss.classifier": "bce",
}
ROBERTA = "sentence-transformers/paraphrase-distilroberta-base-v2"


def unidec(dim, size, positives, negatives, max_labels, **others):
    return UNIDEC | CLASSIFIER | _batch(dim, size, positives, negatives, max_labels, others)


def depsl(dim, size, positives, negatives, max_labels, **others):
    return UNIDEC | _batch(dim, size, positives, negatives, max_labels, others)


def _batch(dim, size, positives, negatives, max_labels, others):
    return {
        "model.dim": dim,
        "batches.size": size,
        "pool.positives": positives,
        "pool.negatives": negatives,
        "pool.max_labels": max_labels,
        **{key.replace("__", "."): value for key, value in others.items()},
    }


def dexml(size, label_chunk, tokens, rate, **others):
    own = {"batches.size": size, "train.lr_encoder": rate}
    # A chunk of so many labels of so many tokens.
    return DEXML | own | {"pool.chunk_tokens": label_chunk * tokens} | others


def sampled(size, negatives, rate, **others):
    own = {"batches.size": size, "train.lr_encoder": rate}
    pool = {"pool.scope": "batch", "pool.positives": 1, "pool.negatives": negatives}
    pool["pool.shortlist_size"] = 100  # [DC]: hard_neg_topk
    # [DC]: hard_neg_start 5 and eval_interval 5, epochs from 0. Labels are mined at the end of the
    # epochs 5, 10, ... and drawn from the next epoch on; ours are mined before an epoch.
    refresh = {"batches.first_refresh": 5 + 1, "batches.refresh_epochs": 5}
    return DEXML | own | pool | refresh | others


def ngame(queries, size, doubles, *, epochs=300, **others):
    return NGAME | {
        "batches.size": size,
        "batches.double_epochs": doubles,
        "batches.first_refresh": doubles[0],
        "train.epochs": epochs,
        "train.warmup": _rounded(100 / (queries / size * epochs)),
        **{key.replace("__", "."): value for key, value in others.items()},
    }


def renee(rows, gpu_size, dropout, rate, label_rate, *, steps=5000, **others):
    size = 16 * gpu_size  # [RC]: sizes are those of each of 16 GPUs
    return RENEE | {
        "batches.size": size,
        "model.dropout": dropout,
        "train.lr_encoder": rate,
        "train.lr_labels": label_rate,
        "train.label_weight_decay": 1e-4,
        "train.weight_decay": 0.01,
        "train.warmup": _rounded(steps / (rows / size * 100)),
        **{key.replace("__", "."): value for key, value in others.items()},
    }


def _rounded(share):
    """Two digits, as the files have shares that follow from steps."""
    return float(f"{share:.2g}")


TITLES = (10, 20, 25, 50, 75, 100, 125, 150, 200)  # [NC] LF-AmazonTitles-131K and -1.3M
LONG = (10, 25, 50, 75, 100, 125, 150, 200)  # [NC] LF-Amazon-131K, LF-WikiSeeAlso-320K
WIKIPEDIA = (5, 10, 15, 20, 25, 30, 35)  # [NC] LF-Wikipedia-500K

PAPERS = {
    # Dimensions: [T] Table 2.2 (both heads together for UniDEC). Batches and pools: [T] Table 2.3.
    # Draws and lambda: [U1] Tables 6 and 7. Symmetric loss: the rows of [T] Table 2.6 that are in
    # its Table 2.2.
    ("lf-amazontitles-131k", "unidec"): unidec(768 // 2, 1152, 3, 6, 0),  # [UC] README
    ("lf-amazontitles-131k", "depsl"): depsl(512, 1152, 3, 6, 0),
    # [T] Tables 2.2 and 2.4: these two rows add a binary cross-entropy; its weight is our choice.
    ("lf-amazontitles-1.3m", "unidec"): unidec(
        512 // 2, 1098, 1, 6, 3000, loss__bce=1.0, loss__bce_mean=True
    ),
    ("lf-amazontitles-1.3m", "depsl"): depsl(384, 2200, 1, 6, 4000, loss__dual_forward=1.0),
    ("lf-amazon-131k", "unidec"): unidec(768 // 2, 576, 3, 6, 3000, loss__dual_share=0.3),
    ("lf-amazon-131k", "depsl"): depsl(512, 576, 3, 6, 3000, loss__dual_forward=1.0),
    ("lf-wikiseealso-320k", "unidec"): unidec(
        768 // 2,
        677,
        3,
        6,
        3500,
        model__label_dropout=0.2,  # [UC]
    ),
    ("lf-wikiseealso-320k", "depsl"): depsl(512, 677, 3, 6, 3500, loss__dual_forward=0.5),
    ("lf-wikipedia-500k", "depsl"): depsl(512, 221, 3, 6, 3000),
    # Not published: batches, pools and draws here are our choice.
    ("lf-wikipedia-500k", "unidec"): unidec(384, 221, 3, 6, 3000),
    ("lf-wikiseealsotitles-320k", "unidec"): unidec(
        768 // 2, 1354, 3, 6, 0, model__label_dropout=0.2
    ),
    ("lf-wikiseealsotitles-320k", "depsl"): depsl(512, 1354, 3, 6, 0),
    ("lf-wikititles-500k", "unidec"): unidec(
        768 // 2, 885, 3, 6, 3000, loss__bce=1.0, loss__bce_mean=True
    ),
    ("lf-wikititles-500k", "depsl"): depsl(512, 885, 3, 6, 3000, loss__dual_forward=1.0),
    # [U1] Table 1: dimensions of SupConDE; Table 2: batch and pool of 1.3M; all else as DePSL.
    ("lf-amazontitles-131k", "supcon-de"): depsl(384, 1152, 3, 6, 0),
    ("lf-amazontitles-1.3m", "supcon-de"): depsl(384, 1098, 1, 6, 4000),
    ("lf-amazon-131k", "supcon-de"): depsl(384, 576, 3, 6, 3000),
    ("lf-wikiseealso-320k", "supcon-de"): depsl(384, 677, 3, 6, 3500),
    ("lf-wikititles-500k", "supcon-de"): depsl(512, 885, 3, 6, 3000),
    ("lf-wikiseealsotitles-320k", "supcon-de"): depsl(512, 1354, 3, 6, 0),
    # [DC]: batch, label chunk, tokens, rate. Batches of the two largest: [T] Table 2.3; [DC] has a
    # batch and a rate for each process, and multiplies both by their number.
    ("eurlex-4k", "dexml"): dexml(512, 512, 128, 5e-5),  # chunks of 4,096: all labels; ours smaller
    ("lf-amazontitles-131k", "dexml"): dexml(3000, 3000, 32, 3e-4),
    ("lf-amazontitles-1.3m", "dexml"): dexml(8192, 3000, 32, 3e-4 * 8192 / 3000, **FREE),
    ("lf-wikipedia-500k", "dexml"): dexml(2048, 512, 128, 7e-5 * 2048 / 768, **FREE),
    # Batches: [T] Table 2.3, where 90,112 labels are 8,192 positives and ten negatives each.
    ("lf-amazontitles-1.3m", "dexml-sampled"): sampled(
        8192, 90112 // 8192 - 1, 3e-4 * 8192 / 3000, **FREE
    ),
    # [DC]: negatives and rate.
    ("lf-wikipedia-500k", "dexml-sampled"): sampled(2048, 5, 2e-5 * 2048 / 768, **FREE),
    ("lf-amazontitles-131k", "dexml-sampled"): sampled(3000, 1, 3e-4),
    ("eurlex-4k", "dexml-sampled"): sampled(512, 1, 5e-5),
    # [NC]: queries, batch, epochs at which clusters double.
    ("lf-amazontitles-131k", "ngame"): ngame(294_805, 1600, TITLES),
    ("lf-amazontitles-1.3m", "ngame"): ngame(2_248_619, 1600, TITLES),
    ("lf-amazon-131k", "ngame"): ngame(294_805, 350, LONG),
    ("lf-wikiseealso-320k", "ngame"): ngame(693_082, 350, LONG),
    ("lf-wikipedia-500k", "ngame"): ngame(
        1_813_391,
        256,
        WIKIPEDIA,
        epochs=40,
        data__max_tokens=256,
        loss__dual_options=NGAME["loss.dual_options"] | {"n_negatives": 5},
    ),
    # [RC]: queries and labels, batch of a GPU, dropout, rate of the encoder.
    ("lf-amazontitles-131k", "renee"): renee(294_805 + 131_073, 32, 0.85, 1e-5, 0.05),
    ("lf-wikiseealso-320k", "renee"): renee(
        693_082 + 312_330, 128, 0.75, 2e-4, 0.1, encoder__name=ROBERTA, train__weight_decay=1e-3
    ),
    ("lf-wikipedia-500k", "renee"): renee(
        1_813_391 + 501_070,
        128,
        0.7,
        1e-4,
        0.002,
        encoder__name=ROBERTA,
        data__max_tokens=256,
        train__label_weight_decay=1e-3,
    ),
    ("lf-amazontitles-1.3m", "renee"): renee(
        2_248_619 + 1_305_265, 64, 0.7, 1e-6, 0.01, steps=15_000
    ),
    ("lf-amazon-131k", "renee"): renee(294_805 + 131_073, 32, 0.75, 1e-4, 0.05),
}
RETRIEVERS = {
    # DPR: section 5 of the paper and its conf/train/biencoder_nq.yaml (16 questions on each of 8
    # GPUs, 1,237 steps of warm-up in 40 epochs of 58,880 questions); nothing on the pooled vector.
    "dpr": {
        "batches.size": 16 * 8,
        "train.epochs": 40,
        "train.lr_encoder": 2e-5,
        "train.weight_decay": 0.0,
        "train.clip_norm": 2.0,
        "train.warmup": _rounded(1237 / (58_880 / 128 * 40)),
        "pool.negatives": 0,
    },
    # ANCE: its commands/run_train.sh (8 queries on each of 4 GPUs, two steps accumulated, the 200
    # nearest) and the defaults of its drivers/run_ann.py.
    "ance": {
        "batches.size": 8 * 4 * 2,
        "train.weight_decay": 0.0,
        "train.clip_norm": 1.0,
        "pool.negatives": 1,
        "pool.shortlist_size": 200,
    },
}
for _preset in RETRIEVERS:
    RETRIEVERS[_preset] |= {
        "loss.dual": "softmax",
        "loss.reduction": "pol",
        "model.projection": "none",
        "model.dropout": 0.0,
        "train.schedule": "linear",
        "pool.positives": 1,
    }
# [T] section 2.4.4: the search engine's data.
QUERY2BID = {
    "model.dim": 64,
    "data.max_tokens": 12,
    "batches.size": 2048 * 8,
    "loss.dual": "decoupled_softmax",
    "model.heads": ("dual",),
    "train.lr_encoder": UNIDEC["train.lr_encoder"],  # as for public data
    "train.lr_heads": UNIDEC["train.lr_heads"],
}
# [RC]: the commands that start from NGAME's encoder, whose folders have label texts as rows too.
AFTER_NGAME = {
    "lf-amazontitles-131k": (294_805 + 131_073, 1600, TITLES, 0.85, 512, 1e-5, 0.05, 5000),
    "lf-amazontitles-1.3m": (2_248_619 + 1_305_265, 1600, TITLES, 0.7, 1024, 1e-6, 0.01, 15_000),
    "lf-amazon-131k": (294_805 + 131_073, 350, LONG, 0.85, 512, 1e-5, 0.05, 5000),
}
for _dataset, (
    _rows,
    _first,
    _doubles,
    _dropout,
    _size,
    _rate,
    _labels,
    _steps,
) in AFTER_NGAME.items():
    PAPERS[_dataset, "ngame-renee"] = ngame(_rows, _first, _doubles) | {
        "augment.method": "self",
        "model.classifier_dropout": _dropout,
        "stage2.batches.size": _size,
        "stage2.train.epochs": 100,
        "stage2.train.lr_encoder": _rate,
        "stage2.train.lr_labels": _labels,
        "stage2.train.label_weight_decay": 1e-4,
        "stage2.train.warmup": _rounded(_steps / (_rows / _size * 100)),
        "stage2.train.weight_decay": 0.01,
        "stage2.train.label_optimizer": "sgd",
        "stage2.train.schedule": "cosine",
        "stage2.model.label_init": "random",
    }
# Top-k runs and NGAME's encoder alone have the numbers of their neighbours.
for (_dataset, _preset), _values in list(PAPERS.items()):
    if _preset == "dexml":
        PAPERS[_dataset, "dexml-topk"] = _values
        if _dataset in ("eurlex-4k", "lf-amazontitles-131k"):  # [DC] has softmax for these two
            PAPERS[_dataset, "dexml-softmax"] = _values
    if _preset == "ngame":
        PAPERS[_dataset, "ngame-encoder"] = _values
