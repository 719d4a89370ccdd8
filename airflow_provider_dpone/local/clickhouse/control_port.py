"""The control port: a JSON endpoint on the loopback interface through which tests set hold points and faults."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_dpone.local.clickhouse.core import Core


def serve_control(core: Core, host: str, port: int) -> int:
    """Start the control port in a thread; returns its number."""

    def act(command: str, given: dict[str, Any]) -> Any:
        if command == "set":
            return core.holds.set(**given)
        if command == "clear":
            return core.holds.clear(given.get("rule_id"))
        if command == "wait":
            return core.holds.wait(**given)
        if command == "state":
            return core.holds.state()
        if command == "forget_quotas":
            return core.store.forget_usage()
        if command == "record_logins":
            core.store.record_logins = True
            return None
        if command == "presented":
            return dict(core.store.presented)
        raise ValueError(f"unknown command {command}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, answer = 200, act(self.path.strip("/"), json.loads(body))
            except (ValueError, TypeError) as error:
                status, answer = 400, str(error)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="control", daemon=True).start()
    return int(server.server_address[1])
