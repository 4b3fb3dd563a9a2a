"""Settings of a run, as frozen dataclasses; accepted values are in ``checks``.

Only ``training/``, ``study/`` and ``cli/`` use config objects; other code takes plain arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from umpteen.config.checks import broken_rules
from umpteen.errors import ConfigError
from umpteen.registry import Registry

FRUGAL = ("bag", "convolution", "inception")
INSTALLED_ENCODERS = Registry("umpteen.encoders", {})
"""Encoders of other packages, which like the frugal ones get a table of token vectors."""
"""Encoders that come with the package: a tokenizer, a token table and few weights."""


@dataclass(frozen=True)
class DataConfig:
    """Which texts are used, and how long they may be."""

    text: str = "all"
    """``title`` leaves contents out; ``all`` reads title and content."""
    max_tokens: int = 32
    """Longer texts are cut, or read in chunks of this length."""
    chunks: int = 1
    """Maximum number of chunks of a text; its vector is their mean, weighted by tokens."""
    propensity_a: float | None = None
    """Constant A of propensity-scored metrics, with B instead of the data's own."""
    propensity_b: float | None = None
    """Constant B."""


@dataclass(frozen=True)
class EncoderConfig:
    """The encoder, which turns texts into vectors."""

    name: str = "bag"
    """``bag``, ``convolution``, ``inception``, or a Hugging Face encoder by folder or hub name."""
    pooling: str = "auto"
    """How a transformer's token vectors become one: ``mean``, ``first``, ``last``; ``auto`` is what
    a sentence-transformers folder says, else ``last`` for decoders and ``mean`` for others."""
    prompt: str = "auto"
    """Put before every text and label text; ``auto`` is the default prompt of a
    sentence-transformers folder, else its prompt ``query``, else none (transformers)."""
    table: str = "auto"
    """First token vectors of a frugal encoder: ``static`` (the packaged table), ``random`` (with a
    tokenizer learned from the data), ``auto`` (static where it is installed), or a model2vec folder
    or hub name."""
    dim: int = 256
    """Size of random token vectors."""
    vocabulary: int = 30000
    """Maximum number of tokens of a learned tokenizer."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of a frugal encoder."""

    @property
    def is_frugal(self) -> bool:
        """Whether the encoder has a name of its own: no transformer's folder or hub name."""
        return self.name in FRUGAL or self.name in INSTALLED_ENCODERS


@dataclass(frozen=True)
class ModelConfig:
    """Heads and label vectors."""

    heads: tuple[str, ...] = ("dual", "classifier")
    """``dual``, ``classifier``, or both."""
    classifier_head: str = "linear"
    """``linear``, or ``dual``: label vectors are scored with the dual head's vectors of queries."""
    label_parametrization: str = "free"
    """What the classifier scores a label with: its ``free`` vector; ``text``: that and the head's
    vector of its text (DECAF); ``graph``: both and the head's vector of its neighbours' texts,
    weighed by random walks (ECLARE; ``augment.walk_steps``, ``augment.restart``). With the last two
    free vectors start at zero."""
    neighbours: int = 10
    """Neighbours of a label in the graph, itself included."""
    projection: str = "linear"
    """``linear``: each head has a linear layer (UniDEC; the dual one with tanh). ``none``: heads
    take the encoder's pooled vectors as they are (DEXML, NGAME, Renee), and ``model.dim`` is the
    encoder's."""
    dim: int = 256
    """Size of each head's vectors."""
    dropout: float = 0.1
    """Dropout rate of the heads."""
    classifier_dropout: float | None = None
    """Dropout rate of the classifier's head, where it differs."""
    label_dropout: float = 0.0
    """Dropout rate of the label vectors."""
    label_init: str = "text"
    """First label vectors: ``text`` (the classifier head's, of the labels' texts), ``zeros``,
    ``random`` (normal with a deviation of 0.02, as in Renee's code), or ``odds``: one for all, with
    which scores start at a label's log-odds, for ``bce`` over all labels. The papers on UniDEC do
    not state theirs."""
    normalize: bool = True
    """Whether the dual head's vectors have length one and its scores are cosines; false is for a
    model with that head alone, whose scores are then inner products."""
    normalize_classifier: bool = False
    """Whether the classifier's scores are cosines too (second stages of NGAME and SiameseXML), over
    ``classifier_temperature``."""
    dual_temperature: float = 0.05
    """Cosines (or inner products) are divided by this."""
    classifier_temperature: float = 1.0
    """Inner products with label vectors are divided by this."""
    learn_temperatures: bool = False
    """Whether the temperatures are trained."""
    share_temperature: bool = False
    """Whether ``dual_temperature`` is the classifier's too, in a model with both heads."""


@dataclass(frozen=True)
class LossConfig:
    """The loss that training minimises."""

    dual: str = "decoupled_softmax"
    """Objective of the dual head."""
    dual_options: dict[str, Any] = field(default_factory=dict)
    """Its further arguments, such as ``{k = 5}`` for ``soft_top_k``."""
    classifier: str = "decoupled_softmax"
    """Objective of the classifier."""
    classifier_options: dict[str, Any] = field(default_factory=dict)
    """Its further arguments."""
    reduction: str = "pal-n"
    """How a query's positives are weighed: ``pal-n`` or ``psl`` (mean), ``pal`` (sum), ``pol`` (one
    drawn), ``k-sample`` (mean over up to k drawn)."""
    reduction_options: dict[str, Any] = field(default_factory=dict)
    """Options of a reduction that draws: ``k`` of ``k-sample``, and ``competing = true`` to keep
    the positives that were not drawn in the denominator of ``softmax``."""
    classifier_reduction: str = ""
    """Another reduction for the classifier, such as ``pal`` for ``bce``, whose positives weigh as
    much as its negatives then; empty for ``reduction``."""
    dual_share: float = 0.5
    """lambda: weight of the dual head's loss; the classifier's is the rest."""
    dual_forward: float = 0.5
    """lambda_D: weight of queries-to-labels in the dual loss; labels-to-queries is the rest."""
    classifier_forward: float = 0.5
    """lambda_C: the same for the classifier."""
    bce: float = 0.0
    """Weight of an added binary cross-entropy on the classifier. The papers do not state theirs."""
    bce_mean: bool = False
    """Whether it is a mean over the pool's labels, instead of a sum."""


@dataclass(frozen=True)
class PoolConfig:
    """The pool: the labels that a batch is trained on."""

    scope: str = "batch"
    """``batch`` draws a pool for each batch; ``all`` takes every label, in blocks; ``bank`` takes
    every label for the dual loss, with fresh vectors for the pool and those of the embedding bank
    for the rest."""
    positives: int = 3
    """beta: positives drawn for each query."""
    negatives: int = 6
    """eta: hard negatives drawn for each query."""
    shortlist_size: int = 0
    """Nearest labels, without positives, that a refresh keeps for each query; its hard negatives
    are drawn from them. 0 keeps ``pool.negatives`` times ``batches.refresh_epochs``, as UniDEC
    does; DEXML keeps 100, ANCE 200."""
    max_labels: int = 0
    """Cap on the pool; 0 for none."""
    min_labels: int = 0
    """A smaller pool is filled up to this with labels drawn uniformly; 0 for none."""
    extra_positives: int = 0
    """Further positives per query for the classifier alone."""
    chunk_tokens: int = 32768
    """With scope ``all``: tokens of texts that are encoded, and trained through, at once."""
    memory_mib: int = 0
    """With scopes ``all`` and ``bank``: memory of a block of scores in MiB; 0 for 512 on a CPU and
    1,536 on a GPU."""
    scores: str = "auto"
    """With scopes ``all`` and ``bank``, what scores are multiplied from: ``fp32``, ``bf16``, or
    ``auto``: as ``train.precision``."""


@dataclass(frozen=True)
class BatchConfig:
    """How training queries are grouped into batches."""

    size: int = 512
    """Queries per batch (clusters may make it up to 1.5 times as large)."""
    clustered: bool = True
    """Whether batches are clusters of similar queries."""
    cluster_size: int = 0
    """Queries per cluster; 0 makes a cluster a batch, a smaller one joins several, 1 is random."""
    double_epochs: tuple[int, ...] = ()
    """Epochs, counted from 0, at which the cluster size doubles: up to 512 and the batch's size."""
    refresh_epochs: int = 5
    """Epochs between refreshes of clusters and hard negatives."""
    first_refresh: int = 0
    """The epoch of the first refresh; batches are random before it."""
    search: str = "auto"
    """How hard negatives are searched: ``exact``; ``clusters``: among the labels of the nearest
    clusters alone; ``bfloat16`` or ``float8``: all labels in few bits first (``float8`` may miss
    one label in ten thousand). ``auto``: bfloat16 on a GPU; on a CPU exact up to 2^30 pairs of
    query and label, and clusters above."""


@dataclass(frozen=True)
class TrainConfig:
    """Optimization, precision and checkpoints."""

    epochs: int = 20
    """Passes over the training queries."""
    max_steps: int = 0
    """End after this many steps, in the midst of an epoch; 0 for all epochs. Learning rates fall to
    zero there."""
    lr_encoder: float | None = None
    """Learning rate of the encoder; by default 2e-4 for transformers and 4e-3 for frugal ones."""
    lr_heads: float | None = None
    """Learning rate of the heads; by default twice the transformer's, or the frugal encoder's."""
    lr_labels: float = 1e-3
    """Learning rate of the label vectors."""
    label_optimizer: str = "adamw"
    """Optimizer of the label vectors: ``adamw``, which moves the rows of a step; ``adamw-dense``,
    which moves all rows at every step; or ``sgd``: with a momentum of 0.9, on the sum over a
    batch's queries (Renee)."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    label_weight_decay: float | None = None
    """Weight decay of the label vectors, where it differs; with ``sgd`` part of the gradient."""
    warmup: float = 0.05
    """Share of the run in which the rates rise."""
    schedule: str = "cosine"
    """How the rates fall to zero from there: ``cosine`` or ``linear``."""
    clip_norm: float = 0.0
    """Largest gradient norm of encoder and heads; 0 for no clipping."""
    frozen: bool = False
    """Whether encoder and dual head stay as they are, and the classifier alone is trained."""
    precision: str = "auto"
    """``fp32``, ``bf16`` (autocast), or ``auto``: bf16 on a GPU."""
    label_storage: str = "fp32"
    """Label vectors: ``fp32``, or ``bf16`` with stochastic rounding, in half the memory."""
    label_moments: str = "fp32"
    """Their optimizer's moments: ``fp32``, or ``int8``, codes in a quarter of the memory."""
    label_device: str = "device"
    """Where label vectors and moments are: ``device``, or ``host``, with a step's rows visiting."""
    threads: int = 0
    """CPU threads of a step; 0 takes all for a transformer, and half of them for a frugal encoder,
    whose steps are too short to share and whose next batch is made beside them."""
    checkpoint_seconds: float = 120.0
    """At least this long between checkpoints; 0 saves after every step."""
    reporters: tuple[str, ...] = ()
    """Classes that receive the progress, ``package.module:Name``, each called with the run folder.
    Not written to the run: a run folder never names code. Give them again with ``--resume``."""


@dataclass(frozen=True)
class ValidationConfig:
    """Validation, which chooses the best model."""

    share: float = 0.03
    """Share of the training queries held out where the data has no validation split; 0 for none."""
    max_queries: int = 2000
    """Hold out at most this many."""
    every_epochs: int = 1
    """Epochs between validations."""
    select: str = "nDCG@5"
    """The metric (of the best available head) that chooses the best model."""
    patience: int = 0
    """Stop after this many validations without a better one; 0 never stops early."""


@dataclass(frozen=True)
class AugmentConfig:
    """Data augmentation: label texts as training queries (Gandalf), synonyms, MixUp."""

    method: str = "none"
    """``none``, or how label texts get their targets: ``gandalf`` (co-occurrence), ``self`` (the
    label alone), ``walks`` (random walks with restart), ``glas`` (symmetric, through a sigmoid).
    Without label rows: ``synonyms`` adds a copy of each query with other words, ``mixup`` mixes
    the vectors and targets of queries, ``label-mixup`` those of queries and labels."""
    delta: float | None = None
    """Targets must be above this; left out, 0.1 for gandalf and walks, 0 for glas."""
    rows: str = "added"
    """``added`` to the queries, ``only`` label rows, or ``sampled``: as many rows as there are
    queries, drawn from both."""
    share: float = 1.0
    """Share of the labels whose texts are used."""
    order: str = "random"
    """Which labels a share takes: ``random`` ones, or the rarest first (``tail``)."""
    max_positives: int = 1000
    """Queries with more labels are left out of co-occurrence; 0 for no limit."""
    max_queries: int = 10000
    """Labels with more queries are counted on so many, drawn; 0 for no limit."""
    walk_steps: int = 400
    """Steps of each label's random walk."""
    restart: float = 0.8
    """Probability that a step of the walk returns to the label."""
    word_share: float = 0.2
    """Share of the words that ``synonyms`` replaces."""
    alpha: float = 0.2
    """Shares of a mixture are drawn from Beta(alpha, alpha)."""


@dataclass(frozen=True)
class ExamplesConfig:
    """Training texts that are stored with their labels, for the kNN scorer."""

    kept: str = "auto"
    """``auto`` stores them where there is an ensemble; ``none`` stores nothing."""
    max_examples: int = 500_000
    """Maximum number of stored texts, drawn at random."""
    texts: bool = True
    """Whether the first characters of the texts are stored, to be shown with predictions."""


@dataclass(frozen=True)
class EnsembleConfig:
    """The ensemble of all scorers."""

    enabled: str = "auto"
    """``auto`` fits it at the end of training; ``off`` never."""
    lexical: bool = True
    """Whether it has the lexical scorers."""
    tail_boost: float | None = None
    """Boost for rare labels; 0 favours precision, 1 rare labels. By default it is chosen on
    validation, where precision and propensity-scored precision count alike."""
    min_queries: int = 50
    """Validation texts with labels that are needed to fit it; with fewer, training texts are
    cross-validated."""
    folds: int = 5
    """Folds of a cross-validation, each a fifth of the training texts, that a model is trained
    without and the ensemble is fitted on."""
    max_texts: int = 500_000
    """Maximum number of training texts that lexical scorers are fitted on and examples are taken
    from, drawn at random."""
    seconds: float = 300.0
    """Time limit of the fit. No further variant is tried after it, and the log names what was
    left out."""


@dataclass(frozen=True)
class RerankConfig:
    """A stage after the ensemble that scores the best labels of a text again."""

    kind: str = "none"
    """``none``; ``features`` for a CPU; ``late-interaction``, a transformer whose tokens of text
    and label are compared; or ``cross-encoder``, a transformer that reads both together. The stage
    is used where validation shows a gain."""
    encoder: str = ""
    """The transformer, by folder or hub name; by default ``encoder.name``."""
    candidates: int = 50
    """Maximum number of labels of a text that are scored again."""


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    seed: int = 17
    """Seed of all random numbers."""
    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    model: ModelConfig = ModelConfig()
    loss: LossConfig = field(default_factory=LossConfig)
    pool: PoolConfig = PoolConfig()
    batches: BatchConfig = BatchConfig()
    train: TrainConfig = TrainConfig()
    validation: ValidationConfig = ValidationConfig()
    examples: ExamplesConfig = ExamplesConfig()
    ensemble: EnsembleConfig = EnsembleConfig()
    rerank: RerankConfig = RerankConfig()
    stage2: dict[str, Any] = field(default_factory=dict)
    """Settings of a second stage that differ: some of loss, pool, batches and train, and
    ``model.label_init`` where label vectors are initialized again. Empty for one stage."""

    @property
    def pair_encoder(self) -> str | None:
        """The transformer that a re-ranker starts from; None where none is named."""
        own = None if self.encoder.is_frugal else self.encoder.name
        return self.rerank.encoder or own

    @property
    def mined_labels(self) -> int:
        """Labels that a refresh keeps for each query; none where all labels are negatives."""
        if self.pool.scope == "all" or not self.pool.negatives:
            return 0
        return self.pool.shortlist_size or self.pool.negatives * self.batches.refresh_epochs

    def __post_init__(self) -> None:
        problems = broken_rules(self)
        if problems:
            raise ConfigError("; ".join(problems))
