"""Who has arrays, and who works, while bench_survive.py ends the daemon: clients that know what must be there afterwards."""
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import threading
import time

USERS = ("ann", "bob", "cem", "dora")
DTYPES = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64"
          " complex128").split()
ITEM = dict(zip(DTYPES, (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16)))
SUM = "sum(astype(x, 'int64') * (2*index(0) + 1))"  # modulo 2**64; of one word that differs it tells for sure
LASTED = 1.05  # seconds: a daemon that dies sooner is started again with a delay
PATIENCE = 60.0
UPLOAD = 1 << 18
GONE = (http.client.HTTPException, ConnectionError, TimeoutError)


class Wrong(Exception):
    """What must not be."""


class Cut(Exception):
    """The connection ended, or the daemon that answered is ending: the request may have been done, or not."""


def size(text):
    number, unit = re.fullmatch(r"([\d.]+)\s*([KMGT]iB)?", text).groups()
    return int(float(number) * 1024 ** ("KMGT".index(unit[0]) + 1 if unit else 0))


class Client:
    """A user's connection, made anew when it is gone."""

    def __init__(self, daemon, user, session=None):
        self.daemon, self.conn = daemon, None
        self.headers = {"Authorization": f"Bearer {daemon.token[user]}", "Content-Type": "application/json",
                        **({"Arrayd-Session": session} if session else {})}

    def close(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    def once(self, method, path, body=None, headers=()):
        """(status, contents, Server-Timing) or Cut."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.conn = self.conn or http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=PATIENCE)
        try:
            self.conn.request(method, path, data, {**self.headers, **dict(headers)})
            r = self.conn.getresponse()
            content = r.read()
        except ConnectionRefusedError as e:
            raise Wrong(f"{method} {path}: the connection was refused") from e
        except GONE as e:
            self.close()
            raise Cut(f"{method} {path}: {e!r}") from e
        if r.will_close:
            self.close()
        return r.status, content, r.getheader("Server-Timing") or ""

    def ask(self, method, path, body=None, *also, headers=()):
        """The reply as JSON (a status among `also`: (status, reply)); 503 and 429 are asked again, and what is pardoned; another
        status is Wrong."""
        until = time.monotonic() + PATIENCE
        while True:
            status, content, _ = self.once(method, path, body, headers)
            reply = json.loads(content) if content[:1] == b"{" and (status >= 300 or not path.endswith("/data")) else content
            if status < 300:
                return (status, reply) if also else reply
            if status in also:
                return status, reply
            code = reply.get("code") if isinstance(reply, dict) else None
            if code in ("device_lost", "contents_lost"):
                raise Cut(f"{method} {path}: {code}")
            if code == "kernel_faulted":
                self.daemon.pardon()
            if (status not in (429, 503) and code != "kernel_faulted") or time.monotonic() > until:
                raise Wrong(f"{method} {path} {str(body)[:200]}: {status} {content[:500]!r}")
            time.sleep(0.01)

    def steady(self, *args, **kw):
        """Where a request may be sent twice, an ending daemon is no obstacle."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.ask(*args, **kw)
            except Cut:
                if time.monotonic() > until:
                    raise

    def value(self, expr, bind=()):
        """A number, or None where an operand's contents are lost."""
        status, reply = self.ask("POST", "/v1/evaluate", {"expr": expr, "bind": dict(bind)}, 409)
        if status == 409 and reply["code"] != "contents_lost":
            raise Wrong(f"{expr}: {reply}")
        return reply.get("value")

    def sync(self):
        self.ask("POST", f"/v1/sessions/{self.headers.get('Arrayd-Session', 'default')}/sync")


class Daemon:
    def __init__(self, options, folder):
        self.options, self.token, self.pardons = options, {}, 0
        self.begun = self.over = 0  # ends of the process so far: before, and after what comes next has answered
        self.kind = None            # of the last one
        accounts, cache = f"{folder}/accounts", f"{folder}/kernels"
        for user in USERS:
            self.token[user] = subprocess.run([options.arrayd, "token", "add", user, "--role", "operator", "--accounts", accounts],
                                              check=True, capture_output=True, text=True).stdout.strip()
        self.cache = pathlib.Path(options.kernel_cache or cache)
        self.log_path = pathlib.Path(f"{folder}/log")
        command = [options.arrayd, "--listen", "127.0.0.1:0", "--backend", options.backend, "--accounts", accounts, "--keep-arrays",
                   "--restart-limit", "1000", "--restart-rate", "0", "--fault-limit", "0", "--max-chunks", "20000", "--max-connections", "1000"]
        if options.backend == "cuda":
            command += ["--kernel-cache", str(self.cache)]
        with open(self.log_path, "wb") as log:
            self.proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not (found := re.search(r"ready .*listen=127\.0\.0\.1:(\d+)", self.log())):
            if self.proc.poll() is not None:
                raise SystemExit(f"{' '.join(command)} does not start:\n{self.log()}")
            time.sleep(0.01)
        self.port = int(found[1])

    def log(self):
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self):
        """Of the daemon proper; None while there is none, or only one that is leaving for another."""
        first = self.proc.pid
        for child in pathlib.Path(f"/proc/{first}/task/{first}/children").read_text().split():
            try:
                if pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                    return int(child)
            except (FileNotFoundError, ProcessLookupError):
                pass
        if self.proc.poll() is not None:
            raise Wrong(f"the keeper ended with {self.proc.returncode}:\n{self.log()[-3000:]}")
        return None

    def pardon(self):
        """Forgets which kernels were on the device when it faulted."""
        try:
            (self.cache / "faulted").unlink()
            self.pardons += 1
        except FileNotFoundError:
            pass

    def held(self):
        """The keeper's descriptors; the bytes of memory among them that the system can count."""
        count = total = 0
        for fd in pathlib.Path(f"/proc/{self.proc.pid}/fd").iterdir():
            try:
                to, st = os.readlink(fd), os.stat(fd)
            except FileNotFoundError:
                continue
            count += 1
            total += st.st_blocks * 512 if to.startswith("/memfd:") and "journal" not in to else 0
        return count, total

    def memory(self):
        """Bytes in use on the GPU, or where there is none, in the keeper's hands."""
        if self.options.backend != "cuda" or not shutil.which("nvidia-smi"):
            return self.held()[1]
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        said = subprocess.run(["nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True,
                              capture_output=True, text=True).stdout
        return int(said.split()[0]) << 20


class Part:
    """What a user has that nobody writes: arrays with their checksums."""

    def __init__(self, daemon, user, rng, wanted):
        self.user, self.daemon, self.want, self.whole = user, daemon, {}, {}
        c = Client(daemon, user)
        self.session = c.ask("POST", "/v1/sessions", {"name": f"{user}s"})["id"]
        c.close()
        self.client = Client(daemon, user, self.session)
        for k, n in enumerate(wanted):
            recipe = k, DTYPES[rng.randrange(len(DTYPES))], n, rng.randrange(1 << 30)
            ref, bits, size = self.make(f"x{k}", *recipe)
            self.want[ref] = {"bits": bits, "bytes": size, "recipe": recipe}
        self.client.sync()
        self.ids = sorted([*self.want, *(x["bits"] for x in self.want.values())])
        for ref, x in self.want.items():
            x["sum"] = self.sum_of(x)
        small = sorted(self.want, key=lambda ref: self.want[ref]["bytes"])
        for ref in small[:: max(1, len(small) // 8)]:
            if self.want[ref]["bytes"] <= 4 << 20:
                self.whole[ref] = self.digest(ref)
        self.leased, self.stranger = small[0], Client(daemon, user, self.session)
        lease = self.client.ask("POST", f"/v1/arrays/{small[0]}/lease", {"mode": "write", "ttl_s": 3000})["token"]
        self.client.headers["Arrayd-Lease"] = lease

    def make(self, name, k, dtype, nbytes, seed):
        """An array of which the same arguments make the same bytes: its id, that of a view that shows its bits, its bytes."""
        c, item = self.client, ITEM[dtype]
        n = max(1, nbytes // item)
        wide = n * item >= 1 << 16
        if wide:
            n -= n * item % 4 // item
        body = {"shape": [n], "random": {"seed": seed}, "name": name}
        if dtype in ("bool", "complex64", "complex128"):
            body.update(dtype="uint8", name="seeds")
            body["random"].update(distribution="integers", low=0, high=255)
            c.ask("POST", "/v1/arrays", body)
            expr = "seeds > 127" if dtype == "bool" else f"astype(seeds, '{dtype}') * (3 + {k + 1}j)"
            ref = c.ask("POST", "/v1/evaluate", {"expr": expr, "name": name})["id"]
            c.ask("DELETE", "/v1/arrays/seeds")
        elif "int" in dtype:
            body["random"].update(distribution="integers", low=0, high=(1 << min(8 * item - 1, 52)) - 1)
            ref = c.ask("POST", "/v1/arrays", {**body, "dtype": dtype})["id"]
        else:
            body["random"]["distribution"] = "uniform"
            ref = c.ask("POST", "/v1/arrays", {**body, "dtype": dtype})["id"]
        return ref, c.ask("POST", f"/v1/arrays/{ref}/views", {"dtype": "uint32" if wide else "uint8"})["id"], n * item

    def sum_of(self, x):
        return self.client.value(SUM, {"x": x["bits"]})

    def digest(self, ref):
        return hashlib.sha256(self.client.ask("GET", f"/v1/arrays/{ref}/data")).hexdigest()

    def verify(self):
        """What is known of arrays that are not what they were."""
        different = []
        for ref, x in self.want.items():
            got = self.sum_of(x)
            if got is None:
                different.append(f"{self.user}'s {ref}: contents_lost, though nobody was writing it")
            elif got != x["sum"]:
                different.append(f"{self.user}'s {ref}: checksum {got}, not {x['sum']}; {self.where(ref, x)}")
        for ref, digest in self.whole.items():
            if self.digest(ref) != digest:
                different.append(f"{self.user}'s {ref}: other bytes; {self.where(ref, self.want[ref])}")
        return different

    def where(self, ref, x):
        """Which of its words differ from those of an array that is made the same way again."""
        k, dtype, nbytes, _ = x["recipe"]
        said = f"{dtype}, {nbytes} bytes, asked again {self.sum_of(x)}"
        again, bits, _ = self.make("again", *x["recipe"])
        bind = {"x": x["bits"], "y": bits}
        count = self.client.value("count_nonzero(x != y)", bind)
        if count:
            first = self.client.value("argmax(astype(x != y, 'uint8'))", bind)
            last = self.client.value("max(where(x != y, index(0), -1))", bind)
            words = [[self.client.value(f"sum(where(index(0) == {i}, {v}, 0))", bind) for v in "xy"] for i in (first, last)]
            said += f"; from {first} to {last}: {words}"
        self.client.ask("DELETE", f"/v1/arrays/{again}")
        return f"{said}; {count} words differ"

    def rights(self):
        """The lease still keeps out who has no token; verify() asks with it. Nothing came and nothing went."""
        status, reply = self.stranger.ask("GET", f"/v1/arrays/{self.leased}/data", None, 409)
        if status != 409 or reply["code"] != "locked":
            raise Wrong(f"{self.user}'s lease is gone: {status} {reply}")
        there = [x["id"] for x in self.client.ask("GET", "/v1/arrays?limit=1000")["arrays"]]
        if sorted(there) != self.ids:
            raise Wrong(f"{self.user} has {len(there)} arrays, not {len(self.ids)}")

    def close(self):
        self.client.close()
        self.stranger.close()


class Worker(threading.Thread):
    """A user at work. What it has asked for is known, so that an array's contents can be told to be whole."""

    def __init__(self, daemon, user, options):
        super().__init__(daemon=True)
        self.d, self.user, self.options = daemon, user, options
        self.client, self.rng = Client(daemon, user), random.Random(f"{options.seed} {user}")
        self.numbers = itertools.count(1)
        self.counts = dict.fromkeys("evaluations uploads made deleted programs lost whole late cut".split(), 0)
        self.ending, self.failure, self.seen = threading.Event(), None, daemon.begun
        self.made = {}     # by name: [id, value, all of it is there]
        self.doubtful = {} # what a request under way is about: name → as above, or None
        self.job = None    # its id; "?": asked for
        self.over = set()  # jobs that have ended
        c, n = self.client, options.elements
        self.low = self.said = self.high = 1 # the least that w may be, what the last reply told of, the most
        self.uploads = [bytes(UPLOAD)]       # what u may be
        self.settled = True                  # nothing of this is being written
        c.ask("PUT", "/v1/arrays/w", {"shape": [n], "dtype": "float32", "fill": 1})
        c.ask("PUT", "/v1/arrays/u", {"shape": [UPLOAD], "dtype": "uint8"})
        for name in ("p", "p0"):
            c.ask("PUT", f"/v1/arrays/{name}", {"shape": [n], "dtype": "float32", "random": {"distribution": "uniform", "seed": 1}})
        c.ask("POST", "/v1/arrays/p/views", {"dtype": "uint32", "name": "bits"})
        self.steps = 50
        self.undisturbed()
        self.steps = max(20, min(200000, int(self.steps / self.undisturbed())))
        self.undisturbed()

    def undisturbed(self):
        """The bits that the program ends with; returns the seconds."""
        begun = time.perf_counter()
        self.begin()
        while self.client.ask("GET", f"/v1/jobs/{self.job}")["state"] in ("queued", "running"):
            time.sleep(0.005)
        took = time.perf_counter() - begun
        self.client.ask("DELETE", f"/v1/jobs/{self.job}")
        self.job = None
        self.bits = self.client.value(SUM, {"x": "bits"})
        return took

    def run(self):
        steps = [self.evaluate] * 6 + [self.upload, self.delete, self.program, self.make] * 2 + [self.settle]
        try:
            while not self.ending.is_set():
                try:
                    if self.seen != self.d.begun:
                        self.look()
                    else:
                        self.rng.choice(steps)()
                except Cut as e:
                    self.counts["cut"] += 1
                    if self.seen == self.d.begun:
                        raise Wrong(f"a connection ended for no reason: {e}") from e
            self.tidy()
        except Exception as e:  # of a thread nobody would see it
            self.failure = f"{self.user}: {type(e).__name__}: {e}"

    # --- work ---

    def evaluate(self):
        self.settled, self.high = False, self.high + 1
        self.client.ask("POST", "/v1/evaluate", {"expr": "w + 1", "out": "w"})
        self.said = self.high
        self.counts["evaluations"] += 1

    def upload(self):
        self.settled = False
        self.uploads.append(self.rng.randbytes(UPLOAD))
        self.client.ask("PUT", "/v1/arrays/u/data", self.uploads[-1], headers={"Content-Type": "application/octet-stream"})
        self.counts["uploads"] += 1

    def make(self):
        name, value = f"t{next(self.numbers)}", self.rng.randrange(1000)
        self.doubtful[name] = None
        body = {"name": name, "shape": [int(10 ** self.rng.uniform(0, 5))], "dtype": "float64", "fill": value}
        self.made[name] = [self.client.ask("POST", "/v1/arrays", body)["id"], value, False]
        del self.doubtful[name]
        self.counts["made"] += 1

    def delete(self):
        if len(self.made) > 10:
            name = self.rng.choice(list(self.made))
            self.doubtful[name] = self.made.pop(name)
            self.client.ask("DELETE", f"/v1/arrays/{name}")
            del self.doubtful[name]
            self.counts["deleted"] += 1

    def begin(self):
        """One program at a time, always the same."""
        self.client.ask("POST", "/v1/evaluate", {"expr": "p0", "out": "p"})
        self.client.sync()  # else it may be lost, being no more than asked for, and the program begin with what was there
        self.job = "?"
        body = {"body": ["p = p + 0.1*laplacian(p, boundary='wrap')"], "steps": self.steps}
        self.job = self.client.ask("POST", "/v1/programs", body)["id"]

    def program(self):
        if self.job is None:
            self.begin()
            return
        job = self.client.ask("GET", f"/v1/jobs/{self.job}")
        if job["state"] == "done":
            got = self.client.value(SUM, {"x": "bits"})
            if self.seen != self.d.begun:
                raise Cut("the program's bits")
            if got != self.bits:
                raise Wrong(f"a program ended with the checksum {got}, undisturbed with {self.bits}")
            done, self.job = self.job, None
            self.over.add(done)
            self.counts["programs"] += 1
            self.client.ask("DELETE", f"/v1/jobs/{done}", None, 404)
        elif job["state"] not in ("queued", "running"):
            if self.seen != self.d.begun:
                raise Cut("the program's end")
            raise Wrong(f"a program: {job}")

    def settle(self):
        """All that was asked is done, unless the daemon was ended meanwhile."""
        self.client.sync()
        values = self.client.value("min(w)"), self.client.value("max(w)")
        if self.seen != self.d.begun:
            raise Cut("settling")
        if values != (self.high, self.high):
            raise Wrong(f"w is {values}, not {self.high}")
        self.low, self.settled = self.high, True
        del self.uploads[:-1]
        for x in self.made.values():
            x[2] = True

    # --- afterwards ---

    def look(self):
        """What has become of it, once the next process answers. Until then a request of this user waits, as others do."""
        begun = self.d.begun
        self.client.steady("GET", "/v1/info")
        while self.d.over != begun:
            time.sleep(0.001)
        self.client.close()
        self.look_at_w()
        self.look_at_u()
        self.look_at_made()
        self.look_at_job()
        self.client.sync()
        self.settled, self.seen = True, begun

    def lost(self, what, settled):
        if settled or self.d.kind == "upgrade":
            raise Wrong(f"{what} has lost its contents, which nobody was writing ({self.d.kind})")
        self.counts["lost"] += 1

    def late(self, what):
        """An older state than a reply has told of: nothing was launched yet."""
        if self.d.kind == "upgrade":
            raise Wrong(f"{what} is older than what was answered, after an upgrade")
        self.counts["late"] += 1

    def look_at_w(self):
        least, most = self.client.value("min(w)"), self.client.value("max(w)")
        if least is None:
            self.lost("w", self.settled)
            self.client.ask("POST", "/v1/evaluate", {"expr": "1.0", "out": "w"})
            least = most = 1
            if self.client.value("max(w)") != 1:
                raise Wrong("w was written as a whole and is not there")
        elif least != most or not self.low <= least <= self.high:
            raise Wrong(f"w is {least} to {most}; it was {self.low} and may be up to {self.high}")
        else:
            self.counts["whole"] += 1
            if least < self.said:
                self.late("w")
        self.low = self.said = self.high = least

    def look_at_u(self):
        status, got = self.client.ask("GET", "/v1/arrays/u/data", None, 409)
        if status == 409:
            self.lost("u", self.settled)
            got = bytes(UPLOAD)
            self.client.ask("PUT", "/v1/arrays/u/data", got, headers={"Content-Type": "application/octet-stream"})
        elif got not in self.uploads:
            raise Wrong("u is none of what was uploaded")
        self.uploads = [got]

    def look_at_made(self):
        for name, x in self.doubtful.items():
            status, meta = self.client.ask("GET", f"/v1/arrays/{name}", None, 404)
            if status != 404 and x:
                self.made[name] = x
            elif status != 404:
                self.client.ask("DELETE", f"/v1/arrays/{name}")
        self.doubtful.clear()
        for name, x in list(self.made.items()):
            if self.client.ask("GET", f"/v1/arrays/{name}")["id"] != x[0]:
                raise Wrong(f"{name} has another id")
            values = self.client.value(f"min({name})"), self.client.value(f"max({name})")
            if values == (None, None):
                self.lost(name, x[2])
                self.client.ask("DELETE", f"/v1/arrays/{name}")
                del self.made[name]
            elif values != (x[1], x[1]):
                raise Wrong(f"{name} is {values}, not {x[1]}")
            else:
                x[2] = True

    def look_at_job(self):
        if self.job == "?":
            jobs = self.client.ask("GET", "/v1/jobs")["jobs"]
            self.job = next((j["id"] for j in jobs if j["id"] not in self.over), None)
        if self.job:
            status, job = self.client.ask("GET", f"/v1/jobs/{self.job}", None, 404)
            if status == 404 or job["state"] not in ("queued", "running", "done"):
                if self.options.jobs:
                    raise Wrong(f"a program did not go on after {self.d.kind}: {job}")
                self.job = None

    def tidy(self):
        """Deletes all that was made."""
        if self.seen != self.d.begun:
            self.look()
        if self.job:
            self.client.ask("DELETE", f"/v1/jobs/{self.job}", None, 404)
            self.client.ask("DELETE", f"/v1/jobs/{self.job}", None, 404)
        for name in ("w", "u", "bits", "p", "p0", *self.made):
            self.client.ask("DELETE", f"/v1/arrays/{name}")
        self.client.sync()
        self.client.close()
