"""A real file server on this machine, with the faults of real ones."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["none", "forbidden", "truncated", "cut", "slow", "corrupt", "silent"]


class FileServer:
    """Serves files by name; `fault` says how badly. `requests` holds the Range header of each request."""

    def __init__(self, files: dict[str, bytes], fault: Fault = "none") -> None:
        self.files, self.fault, self.requests = files, fault, list[str | None]()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["FileServer"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.serve(self)

        return Handler

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.requests.append(wanted)
        content = self.files.get(handler.path.strip("/"))
        if content is None or self.fault == "forbidden":
            handler.send_error(403 if content else 404)
            return
        if self.fault == "silent":
            time.sleep(2)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(content):
            handler.send_error(416)
            return
        body = content[start:]
        handler.send_response(206 if wanted else 200)
        if self.fault == "truncated":  # a proxy that ends early and says so
            body = body[: len(body) // 2]
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if self.fault == "cut":  # the connection breaks half way, the first time
            body, self.fault = body[: len(body) // 2], "none"
        if self.fault == "corrupt":
            body = bytes([body[0] ^ 1]) + body[1:]
        if self.fault == "slow":
            for i in range(0, len(body), max(1, len(body) // 5)):
                handler.wfile.write(body[i : i + max(1, len(body) // 5)])
                handler.wfile.flush()
                time.sleep(0.05)
            return
        handler.wfile.write(body)
