"""Requests and responses as pydantic types. Limits that an operator sets are checked elsewhere."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from umpteen.store.checks import MAX_ID_CHARACTERS, MAX_LABEL_CHARACTERS

Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS, examples=["cherry"])]
ModelName = Annotated[str, Field(min_length=1, max_length=64, examples=["spring"])]
Head = Annotated[str, Field(max_length=40, examples=["ensemble"])]
Probability = Annotated[float, Field(allow_inf_nan=False, examples=[0.5])]


def as_json(value: Any) -> Response:
    """Return JSON values as a response, without validation; any label text can be sent."""
    return Response(to_json(value), media_type="application/json")


def to_json(value: Any) -> bytes:
    """Encode JSON values; ASCII, which can hold any text."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


class Strict(BaseModel):
    """A request: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class PredictRequest(Strict):
    """Texts to label."""

    texts: list[str] | str = Field(examples=[["some text"]], description="One text or several.")
    k: int | None = Field(
        None, ge=1, description="Labels per text at most: 5 by default, 20 with a threshold."
    )
    model: ModelName | None = Field(None, description="By default the active one; see /v1/models.")
    head: Head | None = Field(None, description="By default the best one; see /v1/info.")
    threshold: Probability | Literal["auto", "groups"] | None = Field(
        None,
        description="Leave out labels with a smaller probability; auto: best micro-F1 on "
        "validation; groups: the same for rare and frequent labels apart. Ensemble only.",
    )
    allow: list[Id] | None = Field(None, description="Only these labels.")
    deny: list[Id] | None = Field(None, description="None of these labels.")
    explain: bool = Field(False, description="Add contributions and similar examples.")
    deadline_ms: int | None = Field(None, ge=1, description="Give up after this time.")


class Label(BaseModel):
    """A label that was found."""

    id: str
    text: str
    score: float
    count: int = Field(description="Training texts that have it; 0 for a label added since.")
    scores: dict[str, float] | None = Field(
        None, description="With explain, for the ensemble: the score of each scorer."
    )
    contributions: dict[str, float] | None = Field(
        None,
        description="With explain: by scorer, its part of the score before calibration; for "
        "other heads than the ensemble the score of each head.",
    )


class TextPrediction(BaseModel):
    """The labels of one text, best first."""

    labels: list[Label]
    note: str | None = Field(
        None, description="Why no label is probable, such as a text without a known word."
    )
    neighbours: list[Neighbour] | None = Field(
        None, description="With explain: the most similar examples, where the run stores any."
    )


class Neighbour(BaseModel):
    """A stored example that is similar to the text."""

    text: str | None = Field(None, description="Its beginning, where texts are stored.")
    labels: list[str] = Field(description="The texts of its labels.")
    score: float = Field(description="Cosine, the mean over heads.")


class PredictResponse(BaseModel):
    """Predictions in the order of the texts."""

    predictions: list[TextPrediction]
    head: str
    name: str = Field(description="Of the served model; see /v1/models.")
    model: str
    revision: int = Field(description="Changes granted when the texts were ranked.")


class LabelToAdd(Strict):
    """A label to add."""

    id: Id
    text: str = Field(min_length=1, max_length=MAX_LABEL_CHARACTERS, examples=["sweet cherry"])
    content: str = Field("", max_length=MAX_LABEL_CHARACTERS, description="A longer text.")


class AddRequest(Strict):
    """Labels to add, all or none."""

    labels: list[LabelToAdd] = Field(min_length=1)


class IdsRequest(Strict):
    """Labels to retire or restore, all or none."""

    ids: list[Id] = Field(min_length=1)


class ChangeResponse(BaseModel):
    """The result of a change."""

    changed: int = Field(description="Labels or examples for which it was not in force already.")
    revision: int = Field(description="Changes granted so far.")


class Example(Strict):
    """A text with the labels it should have."""

    text: str = Field(min_length=1, max_length=MAX_LABEL_CHARACTERS, examples=["a red apple"])
    labels: list[Id] = Field(min_length=1, max_length=1000)


class ExamplesRequest(Strict):
    """Examples to store, all or none."""

    examples: list[Example] = Field(min_length=1)


class ListedLabel(BaseModel):
    """A label of the list."""

    id: str
    text: str
    count: int
    state: Literal["trained", "added", "retired"]


class LabelsResponse(BaseModel):
    """A page of labels."""

    labels: list[ListedLabel]
    total: int


class Fault(BaseModel):
    """What went wrong, as one sentence."""

    code: str
    message: str


class ErrorResponse(BaseModel):
    """Every answer that is not 2xx."""

    error: Fault


class EnsembleInfo(BaseModel):
    """The ensemble that predicts by default."""

    scorers: list[str]
    calibration_error: float | None = Field(
        description="Expected calibration error on validation, in percentage points."
    )
    threshold: float = Field(description="The probability that threshold auto stands for.")
    group_thresholds: list[float] = Field(
        description="The same for threshold groups, from frequent to rare labels."
    )
    fitted_on: str
    reranking: str | None = Field(
        description="The re-ranking stage and its cost, in words; None where there is none."
    )


class InfoResponse(BaseModel):
    """The served run and its limits."""

    umpteen: str
    name: str = Field(description="Of the model, for the field model of a request.")
    run: str
    model: str
    heads: list[str]
    default_head: str
    n_labels: int
    n_added: int
    n_retired: int
    n_examples: int = Field(description="Stored examples: training texts and added ones.")
    revision: int = Field(description="Changes granted so far.")
    ensemble: EnsembleInfo | None = Field(description="None where no ensemble was fitted.")
    changes: str = Field(description="Empty if changes are possible; otherwise why not.")
    limits: dict[str, int | float] = Field(
        description="A text costs 1 + k / labels_per_unit + characters / characters_per_unit, with "
        "explain 0.5 + k / explained_labels_per_unit more; a request at most max_cost."
    )
    frequencies: list[dict[str, Any]] = Field(description="Labels by number of training texts.")
    history: list[dict[str, Any]] = Field(description="Validation metrics of the training.")
    report: bool = Field(description="Whether there is a report at /report.")
