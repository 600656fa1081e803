"""A small HTTP client that holds every reply against protocol/openapi.yaml.

Only the standard library, numpy, jsonschema and fastjsonschema. `Contract` knows the OpenAPI file and remembers
which of its routes were asked for; `Client` sends requests over one kept-alive connection and
checks each reply before a test sees it: the status must be listed for the route, the media type
listed for the status, the JSON body must satisfy the schema, the required headers must be there
and satisfy theirs. A request that was accepted must have been one the contract describes.
"""
import http.client
import io
import json
import os
import pathlib
import re
import socket
import threading
import time

import fastjsonschema
import jsonschema
import numpy as np

REPO = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = float(os.environ.get("ARRAYD_TEST_TIMEOUT", "60"))
JSON, OCTETS, NPY = "application/json", "application/octet-stream", "application/x-npy"
PROBLEM = "application/problem+json"
DTYPES = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
          " complex64 complex128").split()
NUMPY_DTYPES = [d for d in DTYPES if d != "bfloat16"]
# Request bodies past this size are not held against the contract: it would cost more than it shows.
MAX_CHECKED = 1 << 18
# Replies that go on for as long as one listens: of these a Client reads the first event, and hangs up.
ENDLESS = re.compile(r"/v1/(arrays/[^/]+/)?events\Z")


def draft_7(node):
    """A schema of the contract as fastjsonschema knows it."""
    if isinstance(node, list):
        return [draft_7(x) for x in node]
    if not isinstance(node, dict):
        return node
    new = {key: draft_7(value) for key, value in node.items()}
    if isinstance(node.get("prefixItems"), list):
        rest = {"additionalItems": new["items"]} if "items" in new else {}
        new.update({"items": new.pop("prefixItems"), **rest})
    if isinstance(node.get("dependentRequired"), dict):
        new["dependencies"] = new.pop("dependentRequired")
    if isinstance(node.get("enum"), list) and all(type(x) is int for x in node["enum"]):
        new.setdefault("type", "integer")  # True is 1, else
    return new


def compiled(schema):
    """Whether a value is certainly valid, as a function: jsonschema takes most of a run's time, so that it is asked only what is wrong with a value that is not."""
    f = fastjsonschema.compile({**draft_7(schema), "$schema": "http://json-schema.org/draft-07/schema#"}, use_default=False)

    def is_valid(value):
        try:
            f(value)
        except fastjsonschema.JsonSchemaException:
            return False
        return True
    return is_valid


class ContractError(AssertionError):
    """A reply that the OpenAPI file does not describe."""


def media_type(value):
    return (value or "").split(";")[0].strip().lower()


class Contract:
    def __init__(self, path=REPO / "protocol" / "openapi.yaml"):
        self.doc = json.loads(pathlib.Path(path).read_text())
        self.hits = set()
        self.validators = {}
        self.lock = threading.Lock()
        self.routes = []  # (regex, template), literal segments before parameters
        for template in self.doc["paths"]:
            pattern = re.sub(r"\{[^}]+\}", "[^/]+", template)
            self.routes.append((re.compile(pattern + r"\Z"), template))
        self.routes.sort(key=lambda r: r[1].count("{"))

    def leave(self, path):
        """Writes down which routes were asked for; take() adds what other processes left."""
        path.write_text(json.dumps(sorted(self.hits)))

    def take(self, paths):
        for path in paths:
            self.hits.update(map(tuple, json.loads(path.read_text())))

    def operations(self):
        return {(m.upper(), path) for path, item in self.doc["paths"].items()
                for m in item if m in ("get", "put", "post", "patch", "delete")}

    def template(self, path):
        path = path.split("?")[0]
        for regex, template in self.routes:
            if regex.match(path):
                return template
        return None

    def resolve(self, node):
        while "$ref" in node:
            target = self.doc
            for step in node["$ref"][2:].split("/"):
                target = target[step.replace("~1", "/").replace("~0", "~")]
            node = target
        return node

    def validate(self, schema, value, what):
        key = json.dumps(schema, sort_keys=True)
        with self.lock:
            if key not in self.validators:
                whole = {"allOf": [schema], "components": self.doc["components"]}
                self.validators[key] = jsonschema.Draft202012Validator(whole), compiled(whole)
            validator, is_valid = self.validators[key]
        if is_valid(value):
            return
        errors = sorted(validator.iter_errors(value), key=lambda e: len(e.absolute_path))
        if errors:
            e = jsonschema.exceptions.best_match(errors) or errors[0]
            at = "/".join(map(str, e.absolute_path))
            raise ContractError(f"{what}: at /{at}: {e.message[:500]}\nin {str(value)[:1000]}")

    def check(self, method, path, headers, body, reply):
        """Raises ContractError unless the reply is one that the contract lists."""
        what = f"{method} {path} -> {reply.status}"
        template = self.template(path)
        item = self.doc["paths"].get(template, {})
        operation = item.get("get" if method == "HEAD" else method.lower())
        for name in ("X-Request-Id", "Server-Timing"):
            if not reply.headers.get(name):
                raise ContractError(f"{what}: no {name}")
        if operation is None:
            if method == "OPTIONS" and template:
                if reply.status != 204 or "Allow" not in reply.headers:
                    raise ContractError(f"{what}: OPTIONS is 204 with Allow")
                return
            self.check_unlisted(what, template, method, reply)
            return
        if method != "HEAD":
            self.hits.add((method, template))
        listed = operation["responses"].get(str(reply.status))
        if listed is None:
            raise ContractError(f"{what}: status not listed: {reply.body[:500]!r}")
        listed = self.resolve(listed)
        self.check_headers(what, listed, reply)
        self.check_body(what, method, listed, reply)
        if reply.status < 300 and method != "HEAD":
            self.check_request(what, item, operation, path, headers, body)

    def check_unlisted(self, what, template, method, reply):
        if reply.status == 405 and "Allow" not in reply.headers:
            raise ContractError(f"{what}: no Allow")
        if reply.status < 400:
            raise ContractError(f"{what}: accepted, but not in the contract")
        if template and reply.status == 404:
            raise ContractError(f"{what}: the path exists, this should be 405")
        if method != "HEAD":
            if media_type(reply.headers.get("Content-Type")) != PROBLEM:
                raise ContractError(f"{what}: not {PROBLEM}")
            self.validate({"$ref": "#/components/schemas/Problem"}, reply.json(), what)

    def check_headers(self, what, listed, reply):
        for name, header in listed.get("headers", {}).items():
            header = self.resolve(header)
            value = reply.headers.get(name)
            if value is None:
                if header.get("required"):
                    raise ContractError(f"{what}: no {name}")
            else:
                self.validate(header["schema"], value, f"{what}: {name}")

    def check_body(self, what, method, listed, reply):
        content = listed.get("content")
        if method == "HEAD":
            if reply.body:
                raise ContractError(f"{what}: HEAD with a body")
            return
        if not content:
            if reply.body:
                raise ContractError(f"{what}: unexpected body {reply.body[:100]!r}")
            return
        kind = media_type(reply.headers.get("Content-Type"))
        if kind not in content:
            raise ContractError(f"{what}: media type {kind!r} is not listed")
        if kind in (JSON, PROBLEM):
            value = reply.json()
            self.validate(content[kind]["schema"], value, what)
            if kind == PROBLEM and value["status"] != reply.status:
                raise ContractError(f"{what}: status {value['status']} in the body")

    def check_request(self, what, item, operation, path, headers, body):
        """What was accepted must be documented: query parameters and a JSON body."""
        names = {p["name"] for p in map(self.resolve, operation.get("parameters", [])
                                        + item.get("parameters", [])) if p["in"] == "query"}
        query = path.split("?", 1)[1] if "?" in path else ""
        for pair in filter(None, query.split("&")):
            if pair.split("=")[0] not in names:
                raise ContractError(f"{what}: accepted the undocumented parameter {pair!r}")
        kind = media_type(headers.get("Content-Type"))
        if kind != JSON or not isinstance(body, bytes) or not 0 < len(body) < MAX_CHECKED:
            return
        content = self.resolve(operation.get("requestBody", {})).get("content", {})
        if JSON in content:
            self.validate(content[JSON]["schema"], json.loads(body), f"{what}: request body")


class Headers:
    """Reply headers: case-insensitive; several of one name are joined by ', '."""

    def __init__(self, pairs):
        self.pairs = list(pairs)

    def get(self, name, default=None):
        found = [v for k, v in self.pairs if k.lower() == name.lower()]
        return ", ".join(found) if found else default

    def __getitem__(self, name):
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name):
        return self.get(name) is not None


def no_constants(text):
    raise ValueError(f"{text} is not JSON")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, Headers(headers), body

    def __repr__(self):
        return f"<Reply {self.status} {self.body[:300]!r}>"

    @property
    def type(self):
        return media_type(self.headers.get("Content-Type"))

    def json(self):
        return json.loads(self.body.decode("utf-8"), parse_constant=no_constants)

    @property
    def code(self):
        """The error token, or None where the reply is no error."""
        return self.json()["code"] if self.type == PROBLEM else None

    def npy(self):
        return np.load(io.BytesIO(self.body), allow_pickle=False)

    def array(self, dtype, shape):
        return np.frombuffer(self.body, np.dtype(dtype).newbyteorder("<")).reshape(shape)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def npy_bytes(a, **kw):
    f = io.BytesIO()
    np.lib.format.write_array(f, np.asanyarray(a), **kw)
    return f.getvalue()


class Client:
    """One connection to the daemon; not thread-safe: a thread makes its own (clone())."""

    def __init__(self, host, port, contract, unix=None, session=None, always=(), tls=None):
        """always: headers of every request. tls: an SSLContext."""
        self.host, self.port, self.contract, self.unix = host, port, contract, unix
        self.session, self.always, self.tls = session, dict(always), tls
        self.conn = None
        self.known_device = None

    def clone(self, **kw):
        args = dict(unix=self.unix, session=self.session, always=self.always, tls=self.tls)
        return Client(self.host, self.port, self.contract, **{**args, **kw})

    def close(self):
        if self.conn:
            self.conn.close()
            self.conn = None

    def connect(self):
        if self.conn is None:
            self.conn = (UnixConnection(self.unix, TIMEOUT) if self.unix else
                         http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT, context=self.tls) if self.tls else
                         http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT))
        return self.conn

    def request(self, method, path, body=None, headers=None, *, json_body=None, accept=None,
                content_type=None, chunked=False, check=True):
        """Sends one request. `json_body` is encoded; `body` is bytes (or, with chunked=True, an
        iterable of bytes) and goes without a Content-Type unless one is given."""
        headers = {**self.always, **(headers or {})}
        if json_body is not None:
            body = json.dumps(json_body, allow_nan=False).encode()
            headers.setdefault("Content-Type", JSON)
        if content_type:
            headers["Content-Type"] = content_type
        if accept:
            headers["Accept"] = accept
        if self.session and path.startswith("/v1/"):
            headers.setdefault("Arrayd-Session", self.session)
        if isinstance(body, str):
            body = body.encode()
        if body is None and method in ("POST", "PUT", "PATCH"):
            body = b""
        if chunked and isinstance(body, bytes):
            body = [body[i:i + 4096] for i in range(0, len(body), 4096)]
        fresh = self.conn is None
        try:
            reply = self.send(method, path, body, headers, chunked)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # A kept-alive connection may have been closed meanwhile; a fresh one may not.
            self.close()
            if fresh or chunked:
                raise
            reply = self.send(method, path, body, headers, chunked)
        if check:
            self.contract.check(method, path, headers, body, reply)
        return reply

    def send(self, method, path, body, headers, chunked):
        conn = self.connect()
        try:
            conn.request(method, path, body, headers, encode_chunked=chunked)
            r = conn.getresponse()
            is_endless = method == "GET" and r.status == 200 and ENDLESS.match(path.split("?")[0])
            reply = Reply(r.status, r.getheaders(), b"".join(iter(r.readline, b"\n")) if is_endless else r.read())
        except Exception:
            self.close()
            raise
        if r.will_close or is_endless:
            self.close()
        return reply

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, json_body=None, **kw):
        return self.request("POST", path, json_body=json_body, **kw)

    def put(self, path, json_body=None, **kw):
        return self.request("PUT", path, json_body=json_body, **kw)

    def patch(self, path, json_body=None, **kw):
        return self.request("PATCH", path, json_body=json_body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    # --- what most tests need; each asserts that it went well ---

    def expect(self, status, reply):
        assert reply.status == status, f"expected {status}: {reply}"
        return reply

    @property
    def device(self):
        """What Server-Timing calls it: cpu or gpu."""
        if self.known_device is None:
            self.known_device = "gpu" if self.info()["backend"] == "cuda" else "cpu"
        return self.known_device

    def quiet(self):
        """Waits until no work is in flight: each piece holds references to what it uses."""
        deadline = time.monotonic() + TIMEOUT
        while self.device == "gpu" and b"\narrayd_jobs_in_flight 0\n" not in self.get("/metrics").body:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def create(self, **fields):
        """Metadata of a new array from a JSON creator: create(name="u", data=[1, 2])."""
        m = self.expect(201, self.post("/v1/arrays", fields)).json()
        if self.device == "gpu":
            m["references"] = self.meta(m["id"])["references"]
        return m

    def upload(self, a, name=None):
        """Metadata of a new array with the contents of a NumPy array (.npy)."""
        path = "/v1/arrays" + (f"?name={name}" if name else "")
        return self.expect(201, self.request("POST", path, npy_bytes(a), content_type=NPY)).json()

    def meta(self, ref):
        """Metadata when no work is in flight."""
        self.quiet()
        return self.expect(200, self.get(f"/v1/arrays/{ref}")).json()

    def download(self, ref, index=None):
        """Contents as a NumPy array, through .npy."""
        path = f"/v1/arrays/{ref}/data"
        if index is not None:
            path += "?index=" + index.replace(" ", "%20")
        return self.expect(200, self.get(path, accept=NPY)).npy()

    def evaluate(self, expr, **fields):
        """The result as a NumPy array; nothing stays behind."""
        key = "expr" if isinstance(expr, str) else "tree"
        r = self.post("/v1/evaluate", {key: expr, **fields}, accept=NPY)
        return self.expect(200, r).npy()

    def fails(self, status, code, reply):
        """Asserts an error reply; returns its body."""
        assert (reply.status, reply.code) == (status, code), f"expected {status} {code}: {reply}"
        return reply.json()

    def info(self):
        return self.expect(200, self.get("/v1/info")).json()

    def list_all(self, path, key):
        """Every entry of a paged list."""
        entries, after = [], None
        while True:
            query = "?limit=1000" + (f"&after={after}" if after else "")
            page = self.expect(200, self.get(path + query)).json()
            entries += page[key]
            after = page.get("next")
            if not after:
                return entries
