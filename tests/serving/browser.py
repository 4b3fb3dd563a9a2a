"""A headless Chromium driven over a pipe by its own protocol; no package is needed."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """Where Chromium is, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of one Chromium.

    ``problems`` gathers what a person would find in the console: exceptions, errors, refusals by
    the content policy; and ``requests`` every address the page asked for.
    """

    def __init__(self, profile: Path):
        to_read, to_write = os.pipe(), os.pipe()

        def arrange():
            # The protocol speaks on descriptors 3 and 4; copies first, for they may be in use.
            first, second = os.dup(to_read[0]), os.dup(to_write[1])
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [find(), *flags, "about:blank"],
            preexec_fn=arrange,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read[0])
        os.close(to_write[1])
        self._out, self._in = to_read[1], to_write[0]
        self._left, self._number, self._session = b"", 0, None
        self.problems, self.requests = [], []
        targets = self("Target.getTargets")["targetInfos"]
        page = next(each for each in targets if each["type"] == "page")
        opened = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = opened["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **fields):
        """Call a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": fields}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def _next(self):
        while b"\0" not in self._left:
            got = os.read(self._in, 1 << 16)
            if not got:
                raise ConnectionError("Chromium is gone")
            self._left += got
        line, _, self._left = self._left.partition(b"\0")
        message = json.loads(line)
        event, fields = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            self.problems.append(fields["exceptionDetails"].get("exception", fields))
        elif event == "Log.entryAdded" and fields["entry"]["level"] == "error":
            self.problems.append(fields["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(fields["request"]["url"])
        return message

    def run(self, script):
        """The value of an expression in the page; promises are waited for."""
        found = self("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script, seconds=30):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.run(script):
                return value
            time.sleep(0.03)
        raise AssertionError(f"never came true: {script}")

    def open(self, url):
        self("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def key(self, key, code=None, *, modifiers=0, text=None):
        """Press a key as a person does."""
        fields = {"key": key, "code": code or key, "modifiers": modifiers}
        codes = {"Enter": 13, "Tab": 9}
        if key in codes:
            fields["windowsVirtualKeyCode"] = codes[key]
        if text:
            fields["text"] = text
        self("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **fields)
        self("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text):
        self("Input.insertText", text=text)

    def look(self, *, width, height, dark=False):
        """Set the size of the screen and the colours the person prefers."""
        mobile = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path):
        shot = self("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        os.close(self._out)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
