"""A server with something to say: ten lines a second to whoever connects to port 9999, until Ctrl-C."""

import itertools
import socketserver
import sys
import time

LINES = """\
It was the best of times, it was the worst of times,
it was the age of wisdom, it was the age of foolishness,
it was the epoch of belief, it was the epoch of incredulity,
it was the season of Light, it was the season of Darkness,
it was the spring of hope, it was the winter of despair.""".splitlines()


class Speaker(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            for line in itertools.cycle(LINES):
                self.request.sendall(f"{line}\n".encode())
                time.sleep(0.1)
        except OSError:
            pass  # the listener has left


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


try:
    with Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9999), Speaker) as server:
        print(f"serving lines on port {server.server_address[1]}; Ctrl-C ends", flush=True)
        server.serve_forever()
except KeyboardInterrupt:
    pass
