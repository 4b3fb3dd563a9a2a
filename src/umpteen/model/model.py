"""The model: an encoder, one or two heads, a vector per label, two temperatures. No losses here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from umpteen.compute.precision import at_least_float32
from umpteen.errors import ConfigError
from umpteen.head_names import HEADS
from umpteen.model.heads import ClassifierHead, DualHead
from umpteen.types import Ragged


class Model(nn.Module):
    """A shared encoder with a dual-encoder head and a classifier head.

    Args:
        encoder: An encoder (see ``model/encoder.py``).
        heads: ``("dual",)``, ``("classifier",)`` or both.
        dim: Size of both heads' vectors; without a projection, the encoder's is taken.
        n_labels: Number of label vectors of the classifier.
        dropout: Of the heads.
        label_dropout: Of the label vectors, while training.
        classifier_dropout: Of the classifier's head, where it differs.
        projection: ``linear``, or ``none``: heads take the encoder's vectors as they are.
        normalize: Whether the dual head's vectors have length one; otherwise, in a model with that
            head alone, its scores are inner products.
        normalize_classifier: Whether the classifier's scores are cosines too.
        dual_temperature: Scores of the dual head are cosines (or inner products) over this.
        classifier_temperature: Scores of the classifier are inner products over this.
        learn_temperatures: Whether the two are trained.
        share_temperature: Whether the dual head's is the classifier's too; trained, by both losses.
        classifier_head: ``linear`` for a head of its own, ``dual`` to score label vectors with the
            dual head's vectors of queries.
        label_storage: ``fp32`` or ``bf16``, how label vectors are kept.
        label_parametrization: What the classifier scores a label with: its ``free`` vector; that
            and the head's vector of its ``text``; or both and the head's vector of the mean of its
            neighbours' texts (``graph``).
        neighbours: Of a label in the graph, itself among them; set with ``set_graph_``.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        heads: tuple[str, ...],
        dim: int,
        n_labels: int,
        dropout: float = 0.1,
        label_dropout: float = 0.0,
        classifier_dropout: float | None = None,
        projection: str = "linear",
        normalize: bool = True,
        normalize_classifier: bool = False,
        dual_temperature: float = 0.05,
        classifier_temperature: float = 1.0,
        learn_temperatures: bool = False,
        share_temperature: bool = False,
        classifier_head: str = "linear",
        label_storage: str = "fp32",
        label_parametrization: str = "free",
        neighbours: int = 0,
    ) -> None:
        super().__init__()
        self.shares_head = classifier_head == "dual" and "classifier" in heads
        _check_heads(heads, shared=self.shares_head, normalize=normalize)
        self.encoder = encoder
        self.normalize = normalize
        self.heads = tuple(h for h in HEADS if h in heads)
        width = int(encoder.dim)  # type: ignore[arg-type]
        self.projection = projection
        self.normalize_classifier = normalize_classifier
        dim = width if projection == "none" else dim
        self.dim = dim
        self.n_labels = n_labels
        # Kept as logarithms of 1 / temperature, so that a trained one stays positive. The first of
        # the model's parameters: it is on the model's device, where label vectors may not be.
        self.log_scales = nn.Parameter(
            torch.tensor([-math.log(dual_temperature), -math.log(classifier_temperature)]),
            requires_grad=learn_temperatures,
        )
        self.share_temperature = share_temperature
        self.dropout = dropout
        self.classifier_dropout = dropout if classifier_dropout is None else classifier_dropout
        self.label_storage = label_storage
        self.fetched: Tensor | None = None
        """Label vectors of a step's pool, where the table itself is elsewhere."""
        self._make_heads(width)
        self.label_parametrization = label_parametrization if "classifier" in heads else "free"
        self.neighbours = neighbours if self.label_parametrization == "graph" else 0
        if self.neighbours:
            own = torch.arange(n_labels, dtype=torch.int32).unsqueeze(1)
            first = torch.zeros(n_labels, neighbours)
            first[:, 0] = 1.0
            self.register_buffer("graph_rows", own.repeat(1, neighbours))
            self.register_buffer("graph_weights", first)
        self.label_dropout = nn.Dropout(label_dropout)

    def _make_heads(self, width: int) -> None:
        """Make the heads, and the table of label vectors where there is a classifier."""
        self.dual_head = self.classifier_head = self.label_vectors = None
        projects = self.projection != "none"
        if "dual" in self.heads:
            self.dual_head = DualHead(
                width, self.dim, dropout=self.dropout, normalize=self.normalize, projection=projects
            )
        if "classifier" in self.heads:
            if not self.shares_head:
                self.classifier_head = ClassifierHead(
                    width,
                    self.dim,
                    dropout=self.classifier_dropout,
                    normalize=self.normalize_classifier,
                    projection=projects,
                )
            kind = torch.bfloat16 if self.label_storage == "bf16" else torch.get_default_dtype()
            self.label_vectors = nn.Parameter(torch.zeros(self.n_labels, self.dim, dtype=kind))

    def encode(self, tokens: Ragged) -> Tensor:
        """Return shared text vectors (B, encoder.dim)."""
        encoded: Tensor = self.encoder(tokens)
        return encoded

    def dual(self, encoded: Tensor) -> Tensor:
        """Return vectors (B, dim) of the dual head; of length one where the model normalizes."""
        assert self.dual_head is not None
        vectors: Tensor = self.dual_head(encoded)
        return vectors

    def classifier(self, encoded: Tensor) -> Tensor:
        """Return vectors (B, dim) for the label vectors.

        Not normalized where the head is its own, unless ``normalize_classifier`` says so.
        """
        if self.shares_head:
            return self.dual(encoded)
        assert self.classifier_head is not None
        vectors: Tensor = self.classifier_head(encoded)
        return vectors

    def label_rows(self, rows: Tensor) -> Tensor:
        """Label vectors (C, dim) of the given rows, in float32 at least; without texts' part.

        Gradients touch these rows alone. Once in a step, with each row once: the optimizer takes
        the rows of the gradient as distinct.
        """
        assert self.label_vectors is not None
        if self.fetched is not None:
            vectors = self.fetched  # these very rows
        else:
            vectors = nn.functional.embedding(rows, self.label_vectors, sparse=True)
        dropped: Tensor = self.label_dropout(at_least_float32(vectors))
        return normalize(dropped, dim=-1) if self.normalize_classifier else dropped

    def text_part(self, rows: Tensor, texts: Tensor, near: Tensor | None = None) -> Tensor:
        """Return what texts add to label vectors, (C, dim).

        Args:
            rows: (C,) label rows.
            texts: (C, encoder.dim) their encoded texts.
            near: (C, M, encoder.dim) those of each label's neighbours, with a graph.
        """
        part = self.classifier(texts)
        if near is None:
            return part
        weights = self.get_buffer("graph_weights")[rows]
        return part + self.classifier((weights.unsqueeze(2) * near).sum(dim=1))

    def set_graph_(self, rows: Tensor, weights: Tensor) -> None:
        """Take over each label's neighbours (L, neighbours) and their weights."""
        self.graph_rows.copy_(rows)  # type: ignore[operator]
        self.graph_weights.copy_(weights)  # type: ignore[operator]

    def dual_scores(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Return inner products over the temperature.

        (B, dim), (C, dim) to (B, C), float32 at least.
        """
        return at_least_float32(queries @ labels.T) * self.scale("dual")

    def classifier_scores(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Return inner products over the temperature.

        (B, dim), (C, dim) to (B, C), float32 at least.
        """
        return at_least_float32(queries @ labels.T) * self.scale("classifier")

    def scale(self, head: str) -> Tensor:
        """Return one over the temperature that a head's scores are divided by."""
        own = head == "classifier" and not self.share_temperature
        return self.log_scales[int(own)].exp()

    def query_vectors(self, tokens: Ragged) -> Tensor:
        """Return what a search starts from: the heads' vectors side by side, (B, heads * dim)."""
        return self.search_vectors(self.encode(tokens))

    def search_vectors(self, encoded: Tensor) -> Tensor:
        """Return the same of texts already encoded: (B, encoder.dim) to (B, heads * dim)."""
        parts = []
        if self.dual_head is not None:
            parts.append(self.dual(encoded))
        if self.label_vectors is not None:
            parts.append(normalize(self.classifier(encoded), dim=-1))
        return torch.cat(parts, dim=1)

    def row_parameters(self) -> list[nn.Parameter]:
        """Return parameters of which a step touches few rows."""
        own = [] if self.label_vectors is None else [self.label_vectors]
        return [*self.encoder.row_parameters(), *own]  # type: ignore[operator]


def place_model(model: Model, device: torch.device, *, labels_on_host: bool) -> Model:
    """Move a model to a device; its label vectors may stay where they are."""
    table = model.label_vectors
    if not labels_on_host or table is None:
        return model.to(device)
    model.label_vectors = None
    model.to(device)
    model.label_vectors = table
    return model


def _check_heads(heads: tuple[str, ...], *, shared: bool, normalize: bool) -> None:
    """Raise if a model cannot have these heads."""
    if set(heads) - set(HEADS) or not heads:
        raise ConfigError(f"heads must be some of {', '.join(HEADS)}, not {list(heads)}")
    if shared and "dual" not in heads:
        raise ConfigError("the classifier cannot use the dual head: the model has none")
    if not normalize and tuple(heads) != ("dual",):
        # The sum of a cosine and an inner product of any size would be the latter.
        raise ConfigError(f"normalize must be true for the heads {list(heads)}: dual alone may")
