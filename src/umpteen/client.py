"""A small client of the service, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

from umpteen.errors import UmpteenError


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


class Client:
    """Client of ``umpteen serve`` over one kept connection; use one client per thread.

    A request that is refused for overload is sent again after the time that the service names.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        token: Where the service asks for one.
        seconds: What a request may take.
        patience: Seconds to go on asking an overloaded service.

    Example:
        >>> client = Client("http://127.0.0.1:8000")
        >>> client.predict(["some text"], k=3)  # doctest: +SKIP
        [[{'id': 'cherry', 'text': 'sweet cherry', 'score': 0.83, 'count': 7}, ...]]
    """

    def __init__(
        self, url: str, *, token: str | None = None, seconds: float = 30, patience: float = 60
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UmpteenError(f"{url!r} is no address of a service; expected http://host:port")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.hostname, parts.port, timeout=seconds)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._patience = patience

    def predict(
        self,
        texts: Sequence[str] | str,
        k: int = 5,
        *,
        head: str | None = None,
        threshold: float | str | None = None,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        explain: bool = False,
    ) -> list[list[dict[str, Any]]]:
        """Return the best labels of each text.

        Args:
            texts: One text or several.
            k: Labels per text at most.
            head: Which head; by default the best.
            threshold: Leave out labels with a smaller probability: a number, ``"auto"`` or
                ``"groups"``; for the head ``ensemble``.
            allow: Only these labels.
            deny: None of these labels.
            explain: Add what each scorer contributes to the score.

        Returns:
            For each text a list of labels, best first.

        Raises:
            ServiceError: If the service refused.
        """
        options = {"head": head, "threshold": threshold, "allow": allow, "deny": deny}
        body: dict[str, Any] = {"texts": texts, "k": k, "explain": explain}
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

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send any request: JSON in, JSON out.

        Raises:
            ServiceError: If the answer is not a success, after patience with overload.
            UmpteenError: If the service cannot be reached.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
                    raise UmpteenError(f"the service does not answer: {error}") from error
            except OSError as error:
                self._connection.close()
                raise UmpteenError(f"the service does not answer: {error}") from error
        raise AssertionError("unreachable")


def _refusal(status: int, content: bytes) -> ServiceError:
    try:
        error = json.loads(content)["error"]
        return ServiceError(status, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        return ServiceError(status, "unknown", f"the service answered with {status}")
