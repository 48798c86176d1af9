"""A TCP proxy in front of a database that can lose what is sent through it, as a failing network does."""

import contextlib
import select
import socket
import threading


class CuttingProxy:
    """Forward connections to a port; `cut` ends them, with or without the last request having arrived."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.discard = None  # "requests" or "replies" while a cut is under way
        self.open = True
        self.threads = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while self.open:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self.forward, args=(client, server), daemon=True).start()

    def forward(self, client, server):
        """Forward both directions until one end closes, or until something was discarded."""
        with client, server, contextlib.suppress(OSError):
            while self.open:
                for ready in select.select([client, server], [], [], 0.05)[0]:
                    data = ready.recv(65_536)
                    if not data:
                        return
                    if self.discard == ("requests" if ready is client else "replies"):
                        self.discard = None
                        return
                    (server if ready is client else client).sendall(data)

    def cut(self, what):
        """Discard the next requests or the next replies, and close the connection then."""
        self.discard = what

    def close(self):
        self.open = False
        self.listener.close()
