"""The protocol of Annif's ``http`` backend: a served run as a project of Annif.

``POST /v1/projects/ID/suggest`` takes a form, as Annif sends it; no other route does. Texts longer
than the service reads are cut, because the backend of Annif takes an error for an empty answer.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from umpteen.head_names import ENSEMBLE
from umpteen.run_folder import RunFolder
from umpteen.serving.access import caller_of
from umpteen.serving.answering import PredictionJob
from umpteen.serving.engine import Engine
from umpteen.serving.errors import BREAKS, Refused
from umpteen.serving.schemas import as_json

FORM = "application/x-www-form-urlencoded"
MAX_DOCUMENTS = 32
MAX_FIELDS = 1000
LIMIT = 10
"""Labels per text unless the request says otherwise."""


class Document(BaseModel):
    """A text of a batch; other fields, such as metadata, are ignored."""

    text: str
    document_id: str | None = None


class AnnifDocuments(BaseModel):
    """Texts to label together."""

    documents: list[Document] = Field(min_length=1)


class Subject(BaseModel):
    """A label of a text; other fields are ignored."""

    uri: str


class IndexedDocument(BaseModel):
    """A text with its right labels."""

    text: str = Field(min_length=1)
    subjects: list[Subject]


def takes_form(project: str | None, path: str) -> bool:
    """Return whether a route reads a form: ``suggest`` of the project, where one is set."""
    return project is not None and path == f"/v1/projects/{project}/suggest"


def reads_only(project: str | None, path: str) -> bool:
    """Return whether a POST to a route changes nothing."""
    return takes_form(project, path) or path == f"/v1/projects/{project}/suggest-batch"


def project_routes(project: str) -> APIRouter:
    """Return the routes of a project."""
    routes = APIRouter(prefix="/v1/projects", tags=["annif"], responses=BREAKS)

    @routes.get("")
    async def projects(request: Request) -> Response:
        """List the project."""
        return as_json({"projects": [_about(project, request.app.state.engine)]})

    @routes.get(f"/{project}")
    async def about(request: Request) -> Response:
        """Return what Annif reads about the project."""
        return as_json(_about(project, request.app.state.engine))

    form = {"content": {FORM: {"schema": {"type": "object", "required": ["text"]}}}}

    @routes.post(f"/{project}/suggest", openapi_extra={"requestBody": form})
    async def suggest(request: Request) -> Response:
        """Return the labels of one text, sent as a form."""
        fields = _form(await request.body())
        if "text" not in fields:
            raise Refused(400, "the form has no field 'text'")
        limit = _number(fields, "limit", LIMIT, int)
        threshold = _number(fields, "threshold", 0.0, float)
        return as_json((await _suggest([fields["text"]], request, limit, threshold))[0])

    @routes.post(f"/{project}/suggest-batch")
    async def suggest_batch(
        body: AnnifDocuments,
        request: Request,
        limit: Annotated[int, Query(ge=0)] = LIMIT,
        threshold: Annotated[float, Query(ge=0, le=1)] = 0.0,
    ) -> Response:
        """Return the labels of up to 32 texts."""
        if len(body.documents) > MAX_DOCUMENTS:
            raise Refused(
                400, f"{len(body.documents)} documents were sent; at most {MAX_DOCUMENTS} at once"
            )
        texts = [document.text for document in body.documents]
        found = await _suggest(texts, request, limit, threshold)
        named = zip(body.documents, found, strict=True)
        return as_json([each | {"document_id": document.document_id} for document, each in named])

    @routes.post(f"/{project}/learn", status_code=204)
    async def learn(body: list[IndexedDocument], request: Request) -> Response:
        """Store texts with their labels; labels that the run does not have are left out."""
        await _learn(body, request.app.state.engine, who=caller_of(request.scope).who)
        return Response(status_code=204)

    return routes


async def _learn(documents: list[IndexedDocument], engine: Engine, *, who: str) -> None:
    """Store texts with those of their labels that the run has."""
    if len(documents) > engine.options.max_texts:
        raise Refused(
            413, f"{len(documents)} documents were sent; at most {engine.options.max_texts} at once"
        )
    known = engine.version.store.state().labels.rows
    examples = [(_cut(each.text, engine), _known(each, known)) for each in documents]
    examples = [(text, labels) for text, labels in examples if labels]
    if not examples:
        return
    texts, labels = zip(*examples, strict=True)
    await engine.change(
        "add_examples",
        lambda store: store.add_examples(list(texts), list(labels), who=who),
        size=len(texts),
    )


async def _suggest(
    texts: list[str], request: Request, limit: int, threshold: float
) -> list[dict[str, Any]]:
    engine: Engine = request.app.state.engine
    if limit == 0:
        return [{"results": []} for _ in texts]
    job = PredictionJob([_cut(text, engine) for text in texts], min(limit, engine.options.max_k))
    found = await engine.predict(
        job, seconds=engine.options.deadline_seconds, client=caller_of(request.scope).client
    )
    engine.metrics.add("texts_total", len(texts))
    about = _metadata(engine.version.folder, engine.version.stamp)
    return [
        {
            "results": [
                {
                    "uri": label["id"],
                    "label": label["text"],
                    "notation": about.get(label["id"], {}).get("notation"),
                    "score": score,
                }
                for label in labels
                if (score := _score(label["score"], found.head)) >= threshold and score > 0
            ]
        }
        for labels in found.labels
    ]


def _score(score: float, head: str) -> float:
    """Return a score in (0, 1): the probability, or the logistic function of another score."""
    return score if head == ENSEMBLE else 1 / (1 + math.exp(-score))


def _about(project: str, engine: Engine) -> dict[str, Any]:
    version = engine.version
    changed = (version.folder / "models.json").stat().st_mtime
    return {
        "project_id": project,
        "name": f"umpteen {version.model}",
        "language": "und",
        "backend": {"backend_id": "umpteen"},
        "is_trained": True,
        "modification_time": datetime.fromtimestamp(changed, UTC).isoformat(),
    }


@lru_cache(2)
def _metadata(folder: Path, stamp: object) -> dict[str, dict[str, Any]]:
    """Return the metadata of the labels; read again when the run has a new model."""
    return RunFolder(folder).read_label_metadata()


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise Refused(400, f"the form cannot be read: {error}") from None
    return dict(pairs)


def _number(fields: dict[str, str], name: str, default: Any, kind: type) -> Any:
    try:
        value = kind(fields.get(name, default))
    except ValueError:
        raise Refused(400, f"{name} is {fields[name]!r:.40}; expected a number") from None
    if not 0 <= value < math.inf:
        raise Refused(400, f"{name} is {value}; expected at least 0")
    return value


def _cut(text: str, engine: Engine) -> str:
    # Half of a surrogate pair, which JSON can spell, is no character.
    return text[: engine.options.max_characters].encode("utf-8", "replace").decode("utf-8")


def _known(document: IndexedDocument, known: Any) -> list[str]:
    return list(dict.fromkeys(each.uri for each in document.subjects if each.uri in known))
