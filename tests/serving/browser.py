"""Chromium without a window, driven over a pipe by the DevTools protocol. Standard library only."""

import base64
import fcntl
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--mute-audio",
    "--no-default-browser-check", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and writes to 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
KEYS = {
    "Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowDown": (40, ""),
    "ArrowUp": (38, ""), "End": (35, ""), "Home": (36, ""),
}  # fmt: skip


class Browser:
    """One process; pages are opened in it."""

    def __init__(self, folder):
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Away from 3 and 4, which are to be overwritten.
        passed = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        command = [sys.executable, "-c", LAUNCH, *map(str, passed), CHROMIUM, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=passed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in (theirs_in, theirs_out, *passed):
            os.close(fd)
        self._out, self._in = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb", 0)
        self._numbers, self._answers, self._listeners = itertools.count(1), {}, {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        waiting = b""
        while part := self._in.read(1 << 16):
            *whole, waiting = (waiting + part).split(b"\0")
            for line in whole:
                message = json.loads(line)
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif listener := self._listeners.get(message.get("sessionId")):
                    listener(message["method"], message["params"])

    def call(self, method, session=None, /, **params):
        number, box = next(self._numbers), queue.Queue()
        self._answers[number] = box
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        answer = box.get(timeout=180)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def open(self):
        return Page(self)

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(180)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


class Page:
    """A tab that remembers its complaints and its requests."""

    def __init__(self, browser):
        self.browser = browser
        # A context of its own: no storage is shared with other pages.
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=context)
        self._target = target["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        self.complaints, self.requests = [], []
        browser._listeners[self._session] = self._hear
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(1200, 900)

    def _hear(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["exception"].get("description", ""))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['source']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def call(self, method, /, **params):
        return self.browser.call(method, self._session, **params)

    def js(self, expression):
        """The value of an expression, awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, seconds=180):
        """Wait until an expression is true; its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(f"((v) => v instanceof Node || v)({expression})")
            if value:
                return value
            assert time.monotonic() < end, (expression, self.js("document.body.innerText"))
            time.sleep(0.02)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def text(self, selector):
        return self.js(f"document.querySelector({selector!r})?.innerText ?? ''")

    def texts(self, selector):
        return self.js(f"[...document.querySelectorAll({selector!r})].map(e => e.innerText)")

    def click(self, selector):
        """Where a person would: in the middle of the element, scrolled into view."""
        x, y = self.wait(
            f"(() => {{ const e = document.querySelector({selector!r});"
            " if (!e || e.disabled || !e.getClientRects().length) return null;"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, *, shift=False):
        code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def prefer(self, **features):
        listed = [{"name": n.replace("_", "-"), "value": v} for n, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=listed)

    def picture(self, path, *, whole=False):
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self._target)
