"""A Hugging Face Hub with one model, on loopback."""

import contextlib
import hashlib
import http.server
import json
import re
import threading

MODEL = "Helsinki-NLP/opus-mt-en-de"
COMMIT = "c0ffee" * 6 + "beef"
OTHERS = "Helsinki-NLP/opus-mt-en-fr", "Helsinki-NLP/opus-mt-de-en"
API = f"/api/models/{MODEL}"


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """Hub whose large files are on another host, by a redirect."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}  # content by name
        self.large = {"model.safetensors"}
        # Answers to the next requests of a path, instead of the usual ones:
        # (status, headers), or the number of bytes before the connection ends.
        self.faults = {}
        self.requests = []  # "METHOD path range"
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.env = {"HF_ENDPOINT": self.url}

    def listing(self):
        """Return the files as the API lists them."""
        for name, content in self.files.items():
            file = {"rfilename": name, "size": len(content)}
            file["blobId"] = git_sha1(content)
            if name in self.large:
                digest = hashlib.sha256(content).hexdigest()
                file["lfs"] = {"sha256": digest, "size": len(content)}
                file["lfs"]["pointerSize"] = 130
            yield file

    def answer(self, path):
        """Return status, headers and content of a path."""
        if path == "/api/models":
            return 200, {}, [{"id": name} for name in (MODEL, *OTHERS)]
        if path in (f"{API}/revision/main", f"{API}/revision/{COMMIT}"):
            files = {"siblings": [*self.listing()]}
            return 200, {}, {"id": MODEL, "sha": COMMIT} | files
        if path.startswith(f"{API}/revision/"):
            return 404, {"X-Error-Code": "RevisionNotFound"}, {}
        match = re.fullmatch(rf"/{MODEL}/resolve/(main|{COMMIT})/(.+)", path)
        if match and (content := self.files.get(match[2])) is not None:
            headers = {
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{git_sha1(content)}"',
            }
            if match[2] not in self.large:
                return 200, headers, content
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Size": len(content)}
            headers |= {"X-Linked-ETag": f'"{digest}"'}
            cdn = f"http://localhost:{self.server_port}/cdn/{match[2]}"
            return 302, headers | {"Location": cdn}, b""
        if content := self.files.get(path.removeprefix("/cdn/")):
            return 200, {}, content
        return 401, {"X-Error-Code": "RepoNotFound"}, {}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers of a Hub."""

    def log_message(self, *_):
        """Print nothing."""

    def do_HEAD(self):
        self.respond(None)

    def do_GET(self):
        self.respond(self.headers["Range"])

    def respond(self, wanted):
        path = self.path.partition("?")[0]
        line = f"{self.command} {path} {wanted or ''}".strip()
        self.server.requests.append(line)
        status, headers, content = self.server.answer(path)
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        end = None
        if faults := self.server.faults.get(path):
            fault = faults.pop(0)
            if isinstance(fault, int):
                end = fault
            else:
                (status, headers), content = fault, b"{}"
        if wanted and status == 200:
            first, size = int(wanted[6:].rstrip("-")), len(content)
            status, content = 206, content[first:]
            headers = {"Content-Range": f"bytes {first}-{size - 1}/{size}"}
        self.send_response(status)
        for name, value in ({"Content-Length": len(content)} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:end])


@contextlib.contextmanager
def running_hub(folder):
    """Yield a Hub; its `env` makes commands use it, with caches in a folder."""
    with Hub() as hub:
        hub.env |= {"HF_HOME": str(folder / "hf"), "HF_TOKEN": "secret"}
        hub.env |= {"T2T_CACHE": str(folder / "t2t")}
        thread = threading.Thread(target=hub.serve_forever, args=(0.01,))
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
