"""A small client of the service, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from umpteen.errors import UmpteenError
from umpteen.text_input import as_texts


class ServiceError(UmpteenError):
    """The service refused or failed; the message is its own sentence.

    Args:
        status: The HTTP status.
        code: A word for what happened, such as ``overloaded``.
        message: The sentence.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class ServiceUnreachable(UmpteenError):
    """The service does not answer."""


class Client:
    """Client of ``umpteen serve`` over one kept connection; use one client per thread.

    A request that is refused for overload is sent again after the time that the service names.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        token: Where the service asks for one.
        seconds: What a request may take.
        patience: Seconds to go on asking an overloaded service.
        cafile: Certificates to trust, PEM, for https; by default those of the system.
        traceparent: A W3C trace context that is sent with every request.

    Example:
        >>> client = Client("http://127.0.0.1:8000")
        >>> client.predict(["some text"], k=3)  # doctest: +SKIP
        [[{'id': 'cherry', 'text': 'sweet cherry', 'score': 0.83, 'count': 7}, ...]]
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        seconds: float = 30,
        patience: float = 60,
        cafile: str | None = None,
        traceparent: str | None = None,
    ) -> None:
        parts, self._url = urlsplit(url), url
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UmpteenError(f"{url!r} is no address of a service; expected http://host:port")
        self._connection = (
            http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
            if parts.scheme == "http"
            else http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=seconds, context=_trusting(cafile)
            )
        )
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if traceparent is not None:
            self._headers["traceparent"] = traceparent
        self._patience = patience

    def predict(
        self,
        texts: Iterable[str] | str,
        k: int | None = None,
        *,
        head: str | None = None,
        threshold: float | str | None = None,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        explain: bool = False,
        model: str | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Return the best labels of each text.

        Args:
            texts: One text; or several as a list, tuple, array or column of a data frame.
            k: Labels per text at most: 5 by default, 20 with a threshold.
            head: Which head; by default the best.
            threshold: Leave out labels with a smaller probability: a number, ``"auto"`` or
                ``"groups"``; for the head ``ensemble``.
            allow: Only these labels.
            deny: None of these labels.
            explain: Add what each scorer contributes to the score.
            model: The name of a served model; by default the active one.

        Returns:
            For each text a list of labels, best first.

        Raises:
            ServiceError: If the service refused.
        """
        options = {
            "k": k,
            "model": model,
            "head": head,
            "threshold": threshold,
            "allow": allow,
            "deny": deny,
        }
        given = texts if isinstance(texts, str) else as_texts(texts)
        body: dict[str, Any] = {"texts": given, "explain": explain}
        body |= {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in options.items()
            if value is not None
        }
        found = self.call("POST", "/v1/predict", body)
        return [each["labels"] for each in found["predictions"]]

    def add_labels(self, labels: Sequence[dict[str, str]]) -> int:
        """Add labels, ``{"id": .., "text": ..}`` each, all or none; return how many were new."""
        return int(self.call("POST", "/v1/labels", {"labels": list(labels)})["changed"])

    def retire_labels(self, ids: Sequence[str]) -> int:
        """Stop predicting labels; return how many were not retired yet."""
        return int(self.call("POST", "/v1/labels/retire", {"ids": list(ids)})["changed"])

    def restore_labels(self, ids: Sequence[str]) -> int:
        """Undo ``retire_labels``; return how many were retired."""
        return int(self.call("POST", "/v1/labels/restore", {"ids": list(ids)})["changed"])

    def add_examples(self, examples: Sequence[dict[str, Any]]) -> int:
        """Store labelled texts, all or none.

        Args:
            examples: ``{"text": .., "labels": [ids]}`` each; a text sent again gets the new labels.

        Returns:
            How many were new or got other labels.
        """
        return int(self.call("POST", "/v1/examples", {"examples": list(examples)})["changed"])

    def labels(self, search: str = "", *, offset: int = 0, limit: int = 50) -> dict[str, Any]:
        """Return a page of labels and their total number."""
        query = urlencode({"search": search, "offset": offset, "limit": limit})
        found: dict[str, Any] = self.call("GET", f"/v1/labels?{query}")
        return found

    def info(self) -> dict[str, Any]:
        """Return what is served, and its limits."""
        found: dict[str, Any] = self.call("GET", "/v1/info")
        return found

    def models(self) -> dict[str, Any]:
        """Return the served models, and which is active."""
        found: dict[str, Any] = self.call("GET", "/v1/models")
        return found

    def load_model(self, name: str) -> dict[str, Any]:
        """Load a run of the service's folder of runs; return the models afterwards."""
        found: dict[str, Any] = self.call("POST", "/v1/models", {"name": name})
        return found

    def activate_model(self, name: str, *, carry_changes: bool = False) -> dict[str, Any]:
        """Activate a loaded model.

        Args:
            name: The model.
            carry_changes: Apply the changes of labels and examples of the active model to it.

        Returns:
            The models afterwards.
        """
        body = {"name": name, "carry_changes": carry_changes}
        found: dict[str, Any] = self.call("PUT", "/v1/models/active", body)
        return found

    def roll_back_model(self) -> dict[str, Any]:
        """Activate the model that was active before; return the models afterwards."""
        found: dict[str, Any] = self.call("POST", "/v1/models/rollback")
        return found

    def unload_model(self, name: str) -> dict[str, Any]:
        """Unload a model that is not active; return the models afterwards."""
        found: dict[str, Any] = self.call("DELETE", f"/v1/models/{quote(name, safe='')}")
        return found

    def changes(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the last changes, newest first: who changed what and when."""
        found: list[dict[str, Any]] = self.call("GET", f"/v1/changes?limit={limit}")["changes"]
        return found

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send any request: JSON in, JSON out.

        Raises:
            ServiceError: If the answer is not a success, after patience with overload.
            ServiceUnreachable: If the service does not answer.
        """
        until = time.monotonic() + self._patience
        while True:
            status, headers, content = self._once(method, path, body)
            if status < 400:
                return json.loads(content)
            wait = float(headers.get("Retry-After", "1"))
            if status != 429 or time.monotonic() + wait > until:
                raise _refusal(status, content)
            time.sleep(wait)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _once(self, method: str, path: str, body: Any) -> tuple[int, Any, bytes]:
        content = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            try:
                self._connection.request(method, self._prefix + path, content, self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except (http.client.HTTPException, ConnectionError) as error:
                self._connection.close()
                # A kept connection may have been closed meanwhile. Every request may be repeated:
                # a change that is in force already is granted again.
                if attempt == 2:
                    raise self._unreachable(error) from error
            except OSError as error:
                self._connection.close()
                raise self._unreachable(error) from error
        raise AssertionError("unreachable")

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(f"the service at {self._url} does not answer: {error}")


def _trusting(cafile: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ssl.SSLError) as error:
        raise UmpteenError(f"certificates cannot be read from {cafile}: {error}") from error


def _refusal(status: int, content: bytes) -> ServiceError:
    try:
        error = json.loads(content)["error"]
        return ServiceError(status, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        return ServiceError(status, "unknown", f"the service answered with {status}")
