"""Teachers: anything that scores pairs of text and label from 0 to 1.

A callable of Python, a language model behind an OpenAI-compatible endpoint, another run, or a file
of people's judgements.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from umpteen.data.formats.row_batches import open_rows
from umpteen.errors import ConfigError, DataError, RunError, UmpteenError
from umpteen.registry import resolve

if TYPE_CHECKING:
    from umpteen.predictor import Predictor

Pair = tuple[str, str]
"""Text and label text."""
KEY_VARIABLE = "UMPTEEN_TEACHER_KEY"
CHARACTERS_PER_TOKEN = 4.0
RUN_DEPTH = 100
"""Best labels of a text that a run as a teacher scores."""
PROMPT = (
    "Rate how well each label fits the text, from 0 (wrong) to 10 (exactly right). Answer with a "
    "JSON list of {count} numbers and nothing else.\n\nText: {text}\n\nLabels:\n{labels}"
)


class TeacherError(UmpteenError):
    """A teacher did not answer, or its answer is no score."""


@dataclass(frozen=True)
class Teacher:
    """A scorer of pairs with a name, under which its judgements are stored."""

    name: str
    score: Callable[[Sequence[Pair]], Sequence[float | None]]
    """Pairs to scores in [0, 1]; None where it does not know. Pairs of a text come together."""
    tokens: Callable[[Sequence[Pair]], int] = field(default=lambda pairs: plain_tokens(pairs))
    """Estimate of the tokens that are read for some pairs."""

    def __call__(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Score pairs.

        Raises:
            TeacherError: If the callable fails, the number of scores differs, or one is not in
                [0, 1].
        """
        try:
            scores = list(self.score(pairs))
        except UmpteenError:
            raise
        except Exception as error:  # in the code of a user
            raise TeacherError(
                f"{self.name} failed: {type(error).__name__}: {error}; it is called with a list of "
                "pairs (text, label) and must return a score from 0 to 1 for each"
            ) from error
        if len(scores) != len(pairs):
            raise TeacherError(
                f"{self.name} returned {len(scores)} scores for {len(pairs)} pairs; "
                "it must return one for each"
            )
        for pair, score in zip(pairs, scores, strict=True):
            if score is not None and not _is_share(score):
                raise TeacherError(
                    f"{self.name} returned {score!r} for the label {pair[1]!r}; scores are 0 to 1"
                )
        return [None if score is None else float(score) for score in scores]


def load_teacher(spec: str, *, model: str = "default", device: str = "auto") -> Teacher:
    """Return a teacher by its name.

    Args:
        spec: ``package.module:Name`` of a callable (or a class, which is called without arguments);
            the address of an OpenAI-compatible endpoint; the folder of a run; or a file with text,
            label and relevance.
        model: The model to name in requests to an endpoint.
        device: Where a run predicts.

    Raises:
        ConfigError: If it is none of these.
        RunError: If a folder is no run, or its run has no probabilities.
    """
    if spec.startswith(("http://", "https://")):
        endpoint = Endpoint(spec, model, os.environ.get(KEY_VARIABLE))
        return Teacher(f"{spec} {model}", endpoint, endpoint.tokens)
    if Path(spec).is_file():
        return Teacher(f"file {Path(spec).name}", JudgementFile(Path(spec)))
    if Path(spec).is_dir():
        return Teacher(f"run {Path(spec).resolve().name}", RunTeacher.load(spec, device))
    if ":" not in spec:
        raise ConfigError(
            f"the teacher {spec!r} is no file; give package.module:Name, http://..., the folder of "
            "a run, or a file with the columns text, label and relevance"
        )
    found = resolve({}, spec, kind="teacher")
    return Teacher(spec, found() if isinstance(found, type) else found)


def plain_tokens(pairs: Sequence[Pair]) -> int:
    """Estimate tokens from the characters of pairs."""
    return int(sum(len(text) + len(label) for text, label in pairs) / CHARACTERS_PER_TOKEN)


class RunTeacher:
    """A run whose probabilities are the scores, re-ranked where it has a re-ranker.

    Args:
        predictor: With an ensemble.
        depth: Best labels of a text that are read; a label beyond them scores 0.
    """

    def __init__(self, predictor: Predictor, depth: int = RUN_DEPTH) -> None:
        self._predictor, self._depth = predictor, depth
        self._known = frozenset(predictor.snapshot().labels.titles)

    @classmethod
    def load(cls, folder: str, device: str = "auto") -> Self:
        """Load the run.

        Raises:
            RunError: If the folder is no run, or its run has no ensemble.
        """
        from umpteen.predictor import Predictor

        predictor = Predictor.load(folder, device=device)
        if predictor.ensemble is None:
            raise RunError(
                f"{folder} has no ensemble, so its scores are no probabilities; "
                f"run `umpteen fit-ensemble {folder} DATA`"
            )
        return cls(predictor)

    def __call__(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Return the probability of each pair; None for labels that the run does not have."""
        texts = list(dict.fromkeys(text for text, _ in pairs))
        top = self._predictor.predict(texts, k=self._depth)
        found: dict[Pair, float] = {}
        for text, names, scores in zip(texts, top.texts, top.scores.tolist(), strict=True):
            for name, score in zip(names, scores, strict=False):
                found[text, name] = max(found.get((text, name), 0.0), min(max(score, 0.0), 1.0))
        return [found.get(pair, 0.0) if pair[1] in self._known else None for pair in pairs]


def _is_share(score: object) -> bool:
    """Return whether something is a number from 0 to 1."""
    try:
        return 0.0 <= float(score) <= 1.0  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


class JudgementFile:
    """Judgements of people: a table with text, label and relevance."""

    def __init__(self, path: Path) -> None:
        self._known: dict[Pair, float] = {}
        for number, row in open_rows(path).table.rows():
            try:
                text, label, value = (row[name] for name in ("text", "label", "relevance"))
                if not 0.0 <= float(value) <= 1.0:
                    raise ValueError(f"relevance {value}")
                self._known[str(text), str(label)] = float(value)
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"expected the columns text, label and relevance, a number from 0 to 1: "
                    f"{error!r}",
                    path=path,
                    line=number,
                ) from error

    def __call__(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Return what the file has on each pair."""
        return [self._known.get(pair) for pair in pairs]


@dataclass(frozen=True)
class Endpoint:
    """A chat model behind an OpenAI-compatible address; one request for each text."""

    url: str
    model: str
    key: str | None = None
    seconds: float = 120.0

    def __call__(self, pairs: Sequence[Pair]) -> list[float | None]:
        """Score pairs of one or several texts.

        Raises:
            TeacherError: If the endpoint cannot be reached, refuses, or does not answer in numbers.
        """
        scores: list[float | None] = []
        for text, group in groupby(pairs, key=lambda pair: pair[0]):
            labels = [label for _, label in group]
            scores += self._numbers(self._answer(_prompt(text, labels)), len(labels))
        return scores

    def tokens(self, pairs: Sequence[Pair]) -> int:
        """Estimate the tokens of the requests."""
        prompts = (
            _prompt(text, [label for _, label in group])
            for text, group in groupby(pairs, key=lambda pair: pair[0])
        )
        return int(sum(map(len, prompts)) / CHARACTERS_PER_TOKEN)

    def _answer(self, prompt: str) -> str:
        place = urlsplit(self.url)
        path = place.path.rstrip("/")
        if not path.endswith("/chat/completions"):
            path = f"{path}/chat/completions" if path else "/v1/chat/completions"
        body = {
            "model": self.model,
            "temperature": 0,
            "messages": [{"role": "user", "content": prompt}],
        }
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connection = http.client.HTTPConnection(place.netloc, timeout=self.seconds)
        if place.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                place.netloc, timeout=self.seconds, context=context
            )
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                reason = content[:200].decode("utf-8", "replace")
                raise TeacherError(f"{self.url} answered {response.status}: {reason}")
            found: Any = json.loads(content)["choices"][0]["message"]["content"]
            return str(found)
        except (OSError, http.client.HTTPException) as error:
            raise TeacherError(f"{self.url} cannot be reached: {error}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise TeacherError(f"{self.url} did not answer as OpenAI's do: {error!r}") from error
        finally:
            connection.close()

    def _numbers(self, answer: str, count: int) -> list[float]:
        found = re.search(r"\[[^\[\]]*\]", answer)
        try:
            values = [float(value) for value in json.loads(found.group())] if found else []
        except (ValueError, TypeError):
            values = []
        if len(values) != count:
            raise TeacherError(
                f"{self.url} answered {answer[:120]!r}; expected a JSON list of {count} numbers"
            )
        return [min(max(value / 10.0, 0.0), 1.0) for value in values]


def _prompt(text: str, labels: Sequence[str]) -> str:
    listed = "\n".join(f"{place}. {label}" for place, label in enumerate(labels, 1))
    return PROMPT.format(count=len(labels), text=text, labels=listed)
