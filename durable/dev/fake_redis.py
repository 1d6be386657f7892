"""Serve fakeredis on a port: a script that `valkey.py` starts where no real server is to be had."""

from __future__ import annotations

import sys
from typing import Any

from fakeredis import TcpFakeServer
from redis import ResponseError


def serve(host: str, port: int) -> None:
    server = TcpFakeServer((host, port))
    handler: Any = server.RequestHandlerClass

    class PatientHandler(handler):  # type: ignore[misc]  # fakeredis has no types
        """Keeps a connection open after an error; as shipped it closes, and the next command is lost."""

        def setup(self) -> None:
            super().setup()
            read_response = self.current_client.read_response

            def answer() -> object:
                try:
                    return read_response()
                except ResponseError as error:
                    return error

            self.current_client.read_response = answer

    server.RequestHandlerClass = PatientHandler
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
