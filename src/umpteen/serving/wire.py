"""What travels over HTTP, as pydantic types. What an operator can limit is checked elsewhere."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from umpteen.live.changes import LONGEST_ID, LONGEST_TEXT

Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, examples=["cherry"])]
Head = Annotated[str, Field(max_length=40, examples=["combined"])]


def as_json(value: Any) -> Response:
    """Our own values as a response: not checked again, and any label text can be sent."""
    content = json.dumps(value, separators=(",", ":")).encode("ascii")
    return Response(content, media_type="application/json")


class Strict(BaseModel):
    """A request: unknown fields are mistakes."""

    model_config = ConfigDict(extra="forbid")


class PredictRequest(Strict):
    """Texts to label."""

    texts: list[str] | str = Field(examples=[["some text"]], description="One text or several.")
    k: int = Field(5, ge=1, description="Labels per text at most.")
    head: Head | None = Field(None, description="By default the best one; see /v1/info.")
    threshold: float | None = Field(
        None, allow_inf_nan=False, description="Leave out labels scored below this."
    )
    allow: list[Id] | None = Field(None, description="Only these labels.")
    deny: list[Id] | None = Field(None, description="None of these labels.")
    explain: bool = Field(False, description="Add each head's part of the score.")
    deadline_ms: int | None = Field(None, ge=1, description="An answer after this is useless.")


class Label(BaseModel):
    """A label that was found."""

    id: str
    text: str
    score: float
    count: int = Field(description="Training texts that have it; 0 for a label added since.")
    parts: dict[str, float] | None = Field(
        None, description="Where the score comes from, by head; with explain."
    )


class Prediction(BaseModel):
    """The labels of one text, best first."""

    labels: list[Label]
    neighbours: list[Neighbour] | None = Field(
        None, description="The nearest remembered texts, where the run remembers; with explain."
    )


class Neighbour(BaseModel):
    """A remembered text near the one asked about."""

    text: str | None = Field(None, description="Its beginning, where texts are kept.")
    labels: list[str] = Field(description="Their texts.")
    score: float = Field(description="Cosine, the mean over heads.")


class PredictResponse(BaseModel):
    """Predictions in the order of the texts."""

    predictions: list[Prediction]
    head: str
    model: str
    revision: int = Field(description="Of the labels: rises with every change.")


class NewLabel(Strict):
    """A label to add."""

    id: Id
    text: str = Field(min_length=1, max_length=LONGEST_TEXT, examples=["sweet cherry"])
    content: str = Field("", max_length=LONGEST_TEXT, description="A longer text, if there is one.")


class AddRequest(Strict):
    """Labels to add, all or none."""

    labels: list[NewLabel] = Field(min_length=1)


class IdsRequest(Strict):
    """Labels to retire or restore, all or none."""

    ids: list[Id] = Field(min_length=1)


class ChangeResponse(BaseModel):
    """What a change came to; labels for which it was in force already are not counted."""

    changed: int
    revision: int


class Example(Strict):
    """A text with the labels it should have."""

    text: str = Field(min_length=1, max_length=LONGEST_TEXT, examples=["a red apple"])
    labels: list[Id] = Field(min_length=1, max_length=1000)


class MemoryRequest(Strict):
    """Corrected examples to remember, all or none."""

    examples: list[Example] = Field(min_length=1)


class MemoryResponse(BaseModel):
    """How many examples were written, and how many are remembered."""

    changed: int
    remembered: int


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


class InfoResponse(BaseModel):
    """What is served, and its limits."""

    umpteen: str
    run: str
    model: str
    heads: list[str]
    default_head: str
    n_labels: int
    n_added: int
    n_retired: int
    revision: int
    changes: str = Field(description="Empty if labels can be changed; else why not.")
    limits: dict[str, int | float]
    frequencies: list[dict[str, Any]] = Field(description="Labels by number of training texts.")
    history: list[dict[str, Any]] = Field(description="Validation metrics of the training.")
    remembered: int = Field(description="Texts the run remembers; -1 where it keeps no memory.")
    report: bool = Field(description="Whether there is a report at /report.")
