"""A small Hugging Face hub on this machine: repositories in memory, the routes that clients use."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def _send(self, status, body=b"", headers=None, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        length = str(len(body))
        values = {"Content-Type": kind, "Content-Length": length, **(headers or {})}
        for name, value in values.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):  # noqa: N802
        self.do_GET()

    def do_GET(self):  # noqa: N802
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            repository = "/".join(path.split("/")[3:5])
            if repository not in self.hub.files:
                self._send(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
            elif "/tree/" in path:
                self._send(200, self.hub.tree(repository))
            else:
                self._send(200, self.hub.about(repository))
            return
        repository, _, rest = path[1:].partition("/resolve/")
        content = self.hub.files.get(repository, {}).get(rest.partition("/")[2])
        if content is None:
            self._send(404, headers={"X-Error-Code": "EntryNotFound"})
            return
        etag = hashlib.sha1(content).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        self._send(200, content, headers, "application/octet-stream")

    def do_POST(self):  # noqa: N802
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.hub.files.setdefault(name, {})
            self._send(200, {"url": f"{self.hub.url}/{name}", "id": name, "name": name})
            return
        repository = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            files = json.loads(body)["files"]
            regular = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            self._send(200, {"files": [{"path": f["path"], **regular} for f in files]})
        elif "/commit/" in path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    content = base64.b64decode(value["content"])
                    self.hub.files[repository][value["path"]] = content
            url = f"{self.hub.url}/{repository}/commit/{COMMIT}"
            self._send(200, {"success": True, "commitUrl": url, "commitOid": COMMIT})
        else:
            self._send(200, {})


class Hub:
    """Serves ``files``: repository to name to bytes."""

    def __init__(self):
        self.files = {}
        handler = type("HandlerOfHub", (Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def about(self, repository):
        names = [{"rfilename": name} for name in self.files[repository]]
        return {"id": repository, "modelId": repository, "sha": COMMIT, "siblings": names,
                "private": False, "tags": [], "downloads": 0, "likes": 0}  # fmt: skip

    def tree(self, repository):
        return [
            {"type": "file", "path": name, "size": len(content),
             "oid": hashlib.sha1(content).hexdigest()}
            for name, content in self.files[repository].items()
        ]  # fmt: skip

    def close(self):
        self._server.shutdown()
        self._server.server_close()
