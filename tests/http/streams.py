"""A stream of Server-Sent Events, as a client reads it: while a test does other things."""
import http.client
import json
import socket
import threading

from conftest import until


class Stream:
    """What comes of GET `path`, in a thread of its own: `events`, a list of (name, id, data); `over` when the reply has ended as it should."""

    def __init__(self, c, path, **headers):
        self.events, self.over, self.cut = [], False, False
        headers = {**c.always, **({"Arrayd-Session": c.session} if c.session else {}), **headers}
        connection = http.client.HTTPConnection(c.host, c.port, timeout=60)
        connection.request("GET", path, headers=headers)
        self.socket = connection.sock
        self.reply = connection.getresponse()
        assert self.reply.status == 200 and self.reply.headers["Content-Type"] == "text/event-stream", self.reply.read()
        assert self.reply.headers["Cache-Control"] == "no-store"
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def read(self):
        fields = {}
        try:
            for line in map(bytes.decode, self.reply):
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    self.events.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
                    fields = {}
            self.over = not fields
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            self.cut = True  # by close(), or by the daemon

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended
        self.thread.join(20)
        assert not self.thread.is_alive()

    def named(self, name):
        return [e for e in list(self.events) if e[0] == name]

    def wait(self, name, n=1):
        """The data of the nth event of that name."""
        until(lambda: len(self.named(name)) >= n or self.over or self.cut)
        found = self.named(name)
        assert len(found) >= n, self.events
        return found[n - 1][2]

    def ended(self):
        """Why, once it has."""
        until(lambda: self.over or self.cut)
        assert self.over and [e[0] for e in self.events].count("end") == 1 and self.events[-1][0] == "end", self.events
        return self.events[-1][2]["reason"]
