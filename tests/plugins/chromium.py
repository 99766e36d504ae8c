"""Headless Chromium for tests of pages, where it is installed."""

import asyncio
import itertools
import re
import shutil
import subprocess
import threading

import aiohttp
import pytest

SECONDS = 60  # timeout
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --remote-debugging-port=0"
).split()
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no Chromium")


class Browser:
    """A tab of Chromium, controlled by the DevTools protocol."""

    def __init__(self, socket):
        self._socket, self._numbers = socket, itertools.count()
        self.urls = []  # of its requests

    async def call(self, method, **parameters):
        """Run a command and return its result."""
        number = next(self._numbers)
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters}
        )
        while True:
            message = await self._socket.receive_json(timeout=SECONDS)
            if message.get("method") == "Network.requestWillBeSent":
                self.urls.append(message["params"]["request"]["url"])
            if message.get("id") == number:
                return message["result"]

    async def value(self, expression):
        """Evaluate an expression of JavaScript."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression):
        """Wait until an expression is true."""
        end = asyncio.get_running_loop().time() + SECONDS
        while not await self.value(expression):
            assert asyncio.get_running_loop().time() < end, expression

    async def resize(self, width):
        """Make the window that of a phone or a screen."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=740,
            deviceScaleFactor=2,
            mobile=width < 600,
        )
        await self.until(f"innerWidth == {width}")

    async def prefer_dark(self):
        """Report a dark color scheme to the page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key):
        """Press and release a key."""
        keys = {"key": key, "code": key, "windowsVirtualKeyCode": 13}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **keys)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **keys)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """Yield the address of the DevTools of a running Chromium."""
    folder = tmp_path_factory.mktemp("chromium")
    process = subprocess.Popen(
        [CHROMIUM, *QUIET, f"--user-data-dir={folder}", "about:blank"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    lines = iter(process.stderr.readline, "")
    try:
        found = (re.search(r"ws://(127\.0\.0\.1:\d+)/", line) for line in lines)
        address = next((match[1] for match in found if match), None)
        if address is None:
            pytest.skip("Chromium does not start here")
        # Read the rest of its output: a full pipe would stop it.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield address
    finally:
        process.kill()
        process.wait()


def visit(chromium, url, test):
    """Run the coroutine function `test` with a Browser at `url`."""

    async def main():
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://{chromium}/json/new") as response:
                tab = await response.json(content_type=None)
            socket = await session.ws_connect(
                tab["webSocketDebuggerUrl"], max_msg_size=0
            )
            browser = Browser(socket)
            await browser.call("Network.enable")
            await browser.call("Page.enable")
            await browser.call("Page.navigate", url=url)
            await browser.until(
                "document.readyState == 'complete' && location.href != "
                "'about:blank'"
            )
            await test(browser)
            await socket.close()

    asyncio.run(main())
