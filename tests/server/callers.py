"""Callers with access tokens, and a server on which much goes on that is none of their business.

Everything that is not to be seen has `MARK` in it: keys, owners, hosts, reasons, results, names.
"""

import base64
import hashlib
import http.client
import itertools
import json
import os
import re
from contextlib import closing, contextmanager
from urllib.parse import quote

MARK = "zqxj9"
HELD, NEVER = f"secret:{MARK}:held", f"secret:{MARK}:none"  # of the same length
PATIENCE = 30.0  # seconds; what we wait for comes in milliseconds


class Answer:
    """A response, with all that a caller can see of it."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def everything(self):
        return f"{self.status} {self.headers} {self.body.decode('utf-8', 'replace')}"

    def without(self, key):
        """What is told, but for the time, the request's id, and the key that the caller said itself."""
        shown = {
            name: text for name, text in self.headers.items() if name not in ("date", "holdfast-request-id")
        }
        return self.status, shown, self.body.decode().replace(key, "KEY").replace(quote(key, safe=""), "KEY")


class Listener:
    """A stream of server-sent events, read to where somebody wants it."""

    def __init__(self, connection, response):
        self._connection = connection
        self._response = response
        self.status = response.status
        self.seen = ""

    def until(self, what):
        """Read until *what* is in a line, and return that line."""
        while line := self._response.readline().decode():
            self.seen += line
            if re.search(what, line):
                return line
        raise AssertionError(f"the stream ended without {what!r}: {self.seen}")

    def to_its_end(self):
        while line := self._response.readline().decode():
            self.seen += line
        return self.seen

    def close(self):
        self._response.close()
        self._connection.close()


class Caller:
    """Somebody with a token, or without."""

    def __init__(self, port, token=None):
        self._port = port
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.id = token and token[3:15]
        self.url = f"http://{'' if token is None else f':{token}@'}127.0.0.1:{port}"

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        with closing(connection):
            return Answer(self._send(connection, method, path, body, headers))

    def do(self, key, what, **body):
        """Do something to a lock that must work."""
        return self.on(f"/v1/locks/{quote(key, safe='')}/{what}", **body)

    def join(self, id, **body):
        """Have an instance."""
        return self.on("/v1/instances", id=id, **body)

    def on(self, path, **body):
        """Do something that must work."""
        answer = self.ask("POST", path, body)
        assert answer.status in (200, 202), answer.everything
        return answer.json

    def listen(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        response = self._send(connection, method, path, body, {"Accept": "text/event-stream", **headers})
        return Listener(connection, response)

    def _send(self, connection, method, path, body, headers):
        sent = {**self._headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        if body is not None:
            body = json.dumps(body)
            sent["Content-Type"] = "application/json"
        connection.request(method, path, body, sent)
        return connection.getresponse()


class Scene:
    """A server on which much goes on that concerns nobody but the boss, and a little that concerns us."""

    _ids = itertools.count(1)

    def __init__(self, port, boss_token):
        self.port = port
        self.boss = Caller(port, boss_token)
        self.nobody = Caller(port)
        self.me = self.somebody("admin:mine:*", "admin:shared:*", "admin:instance:me/*", name="me")

    def somebody(self, *rights, name="somebody"):
        """Make a token."""
        secret = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        digest = hashlib.sha256(secret.encode()).hexdigest()
        body = {"id": f"{next(self._ids):012x}", "name": name, "digest": digest, "rights": list(rights)}
        assert self.boss.ask("POST", "/v1/access-tokens", body).status == 200
        return Caller(self.port, f"hf_{body['id']}_{secret}")

    def stage(self):
        """Have locks held, waited for, broken, resized, used for operations: our own, and secret ones."""
        boss, me = self.boss, self.me
        client = {"instance": "", "host": f"{MARK}-host", "pid": 7}
        boss.do(HELD, "acquire", owner=f"{MARK}-holder", attempt=f"{MARK}-1", ttl=3600, client=client)
        boss.do(HELD, "acquire", owner=f"{MARK}-waiter", attempt=f"{MARK}-2", wait=True, patience=3600)
        boss.do(f"secret:{MARK}:broken", "acquire", owner=f"{MARK}-holder", client=client)
        boss.do(f"secret:{MARK}:broken", "break", reason=f"{MARK} was stuck", by=f"{MARK}-operator")
        work = boss.do(f"secret:{MARK}:op", "acquire", owner=f"{MARK}-worker", operation=True)
        told = {"succeeded": True, "text": json.dumps(f"{MARK}-result")}
        lease = {"attempt": work["attempt"], "token": work["token"]}
        boss.do(f"secret:{MARK}:op", "release", outcome=told, **lease)
        boss.do(f"secret:{MARK}:gpu", "resize", permits=4, by=f"{MARK}-operator")
        self.somebody(f"observe:secret:{MARK}:*", name=f"{MARK}-name")
        for key in ("mine:a", "mine:b", "mine:c"):
            me.do(key, "acquire", owner="worker", ttl=3600)
        self.stage_work()

    def stage_work(self):
        """Have instances, and work in every state: our own, and secret ones."""
        boss, me = self.boss, self.me
        client = {"instance": "", "host": f"{MARK}-host", "pid": 7}
        boss.join(f"{MARK}-1", name=f"{MARK}-engine", ttl=3600, version=f"{MARK}-2.0", client=client)
        boss.join(f"{MARK}-2", ttl=3600)
        boss.on(f"/v1/instances/{MARK}-2/leave")
        work = {"data": json.dumps(f"{MARK}-data")}
        secret = [f"secret:{MARK}:w{number}" for number in range(4)]
        boss.on(
            "/v1/work", works=[{"key": key, **work} for key in (*secret, f"{MARK}-type:1", f"{MARK}-bare")]
        )
        begun = {"attempt": f"{MARK}-w", "id": f"{MARK}-1", "ttl": 3600, "client": client}
        for key in secret[1:]:
            given = boss.on(f"/v1/work/{key}/assign", **begun)
            lease = {"attempt": given["attempt"], "token": given["token"]}
            if key != secret[1]:
                ending = "completed" if key == secret[2] else "failed"
                boss.on(f"/v1/work/{key}/finish", ending=ending, text=json.dumps(f"{MARK}-result"), **lease)
        me.join("i-1", ttl=3600)
        me.on("/v1/work", works=[{"key": f"mine:w{number}"} for number in range(3)])
        me.on("/v1/work/mine:w1/assign", attempt="mine-w1", id="i-1", ttl=3600)


@contextmanager
def listening(who, path, method="GET", body=None, **headers):
    listener = who.listen(path, method, body, **headers)
    try:
        yield listener
    finally:
        listener.close()
