"""A kernel that faults takes the device along. Who had work on it is named, in the log and in the
errors of that work, and the kernels that may have done it are not run again after the restart."""
import signal
import threading

import numpy as np
import pytest

from conftest import until

STEP = "u + 0.1*laplacian(u)"


def cached(gpu_with, tmp_path, *args, **kw):
    return gpu_with("--no-keeper", "--kernel-cache", tmp_path / "kernels", *args, **kw)


def lost(d):
    d.expected = 75
    d.proc.send_signal(signal.SIGTERM)
    assert d.proc.wait(30) == 75, d.log()[-3000:]


def lines(d, what):
    return [line for line in d.log().splitlines() if what in line]


def fails_once(gpu_with, tmp_path, ask, how="719 async"):
    """The reply of what faults, and the daemon's log."""
    d = cached(gpu_with, tmp_path, "--lost-exit-delay", 4)
    api = d.client()
    api.create(name="u", data=np.ones((8, 8)).tolist())
    api.expect(200, api.post("/v1/sessions/default/sync", {}))
    d.fail(how)
    reply = ask(api)
    api.close()
    lost(d)
    return reply, d


def ask_of(expr):
    return lambda api: api.post("/v1/evaluate", {"expr": expr, "inline": True})


class Waiting:
    """A request of which the reply comes later; begun when its launch has met what it fails with."""

    def __init__(self, d, fuse, client, path, body):
        d.fail("719 held")
        self.thread = threading.Thread(target=self.run, args=(client, path, body))
        self.thread.start()
        until(lambda: not fuse.exists())

    def run(self, client, path, body):
        self.reply = client.post(path, body)

    def end(self):
        self.thread.join(30)
        return self.reply


def fault_now(tmp_path, other):
    """When all of the work that meets its end has been launched: others' comes behind it then."""
    other.expect(200, ask_of("u/5")(other))
    (tmp_path / "fail.go").touch()


def test_all_who_had_work_on_the_device_are_named(gpu_with, accounts, tmp_path):
    for name in ("ann", "bob", "eve"):
        accounts.add(name, role="operator")
    d = cached(gpu_with, tmp_path, "--accounts", accounts.path, "--lost-exit-delay", 4)
    ann, bob, eve = (accounts.client(d, name) for name in ("ann", "bob", "eve"))
    for api in (ann, bob, eve):
        api.create(name="u", data=np.ones((8, 8)).tolist())
        api.expect(200, api.post("/v1/sessions/default/sync", {}))
    fuse = tmp_path / "fail"
    value = Waiting(d, fuse, bob, "/v1/evaluate", {"expr": "sum(u*3)", "inline": True})
    job = Waiting(d, fuse, ann, "/v1/programs?wait=1", {"body": [f"u = {STEP}"], "steps": 50})
    fault_now(tmp_path, eve)
    job, value = job.end(), value.end()
    assert value.status == 503, value
    detail = bob.fails(503, "device_lost", value)["detail"]
    assert "LAUNCH_FAILED" in detail and "work of 1 other" in detail and "reduce-all " in detail
    assert "laplacian" not in detail
    failed = ann.expect(200, job).json()
    assert failed["state"] == "failed" and failed["error"]["code"] == "device_lost"
    assert "work of 1 other" in failed["error"]["detail"] and "steps " in failed["error"]["detail"]
    first, second = sorted(lines(d, "on the device when it was lost"), key=lambda line: "bob" in line)
    assert " error " in first and f" job={failed['id']} " in first and " principal=ann " in first
    assert STEP in first and "POST /v1/programs" in first and 'kernels="steps ' in first
    assert " error " in second and ' job="" ' in second and " principal=bob " in second
    assert "sum(u*3)" in second and value.headers["X-Request-Id"] in second
    assert "reduce-all " in second and "refused" not in second
    assert not lines(d, "principal=eve")
    kept = (tmp_path / "kernels" / "faulted").read_text()
    assert kept.count("\nsuspect ") == 3 and "\nrefused " not in kept
    for api in (ann, bob, eve):
        api.close()
    lost(d)


def test_a_kernel_that_was_alone_is_refused_from_then_on(gpu_with, tmp_path):
    r, d = fails_once(gpu_with, tmp_path, ask_of("u*3 - u/7"))
    assert r.status == 503 and "with no other work: flat " in r.json()["detail"]
    line, = lines(d, "on the device when it was lost")
    assert "u*3 - u/7" in line and " refused" in line
    again = cached(gpu_with, tmp_path)
    api = again.client()
    until(lambda: lines(again, "1 kernels or plans are refused"))
    u = np.ones((8, 8))
    api.create(name="u", data=u.tolist())
    for body in ({"expr": "u*3 - u/7", "inline": True}, {"expr": "u*3 - u/7", "name": "v"},
                 {"expr": "u*3 - u/7", "out": "u"}):
        detail = api.fails(422, "plan_faulted", api.post("/v1/evaluate", body))["detail"]
        assert "this work is refused: at 20" in detail and "the flat kernel" in detail and "LAUNCH_FAILED" in detail and "operator" in detail
    job = api.expect(200, api.post("/v1/programs?wait=1", {"body": ["u = u*3 - u/7"], "steps": 5})).json()
    assert job["state"] == "failed" and job["step"] == 0 and job["failed_step"] == 1
    assert job["error"]["code"] == "plan_faulted" and "the flat kernel" in job["error"]["detail"]
    body = {"statements": ["v = u*3 - u/7"], "results": ["v"]}
    assert "the flat kernel" in api.fails(422, "plan_faulted", api.post("/v1/evaluate", body))["detail"]
    assert api.download("u").tolist() == u.tolist()
    k, = api.expect(200, api.post("/v1/explain", {"expr": "u*3 - u/7"})).json()["kernels"]
    assert "\n// refused: at 20" in k["source"]
    assert b"\narrayd_cuda_kernels_refused 1\n" in api.get("/metrics").body
    assert api.expect(200, ask_of("u*3 - u/9 + 1")(api)).json()["data"][0][0] == pytest.approx(35/9)
    # the operator takes it back
    (tmp_path / "kernels" / "faulted").unlink()
    assert api.expect(200, ask_of("u*3 - u/7")(api)).json()["data"][0][0] == pytest.approx(20/7)
    api.close()


def test_a_program_goes_on_without_the_kernel_that_faulted(gpu_with, tmp_path):
    """Its steps were made several in a pass; then they are made one by one, with the same outcome."""
    def run(api):
        return api.post("/v1/programs?wait=1", {"body": [f"u = {STEP}"], "steps": 64})

    def make(api):
        api.upload(np.arange(64.0).reshape(8, 8) ** 2, name="u")
        api.expect(200, api.post("/v1/sessions/default/sync", {}))

    d = cached(gpu_with, tmp_path)
    api = d.client()
    make(api)
    job = api.expect(200, run(api)).json()
    assert job["state"] == "done" and job["pass"]["steps"] > 1
    want = api.download("u")
    api.close()
    d.stop()
    # a process that does not know yet how long a step takes begins with several, however busy the machine is
    d = cached(gpu_with, tmp_path, "--lost-exit-delay", 4)
    api = d.client()
    make(api)
    d.fail("700 async")
    failed = api.expect(200, run(api)).json()
    assert failed["state"] == "failed" and "steps " in failed["error"]["detail"]
    api.close()
    lost(d)
    again = cached(gpu_with, tmp_path)
    api = again.client()
    make(api)
    job = api.expect(200, run(api)).json()
    assert job["state"] == "done" and job["pass"]["steps"] == 1, job
    assert "faulted" in job["pass"]["why"]
    np.testing.assert_array_equal(api.download("u"), want)
    api.close()


def test_kernels_of_one_plan_are_refused_together_and_one_that_is_part_of_two(gpu_with, tmp_path):
    """Also where a single kernel that has not faulted could take their place."""
    def wholes(api):
        api.expect(200, ask_of("u/9 - max(u)")(api))
        return b"\narrayd_cuda_wholes_total 0\n" not in api.get("/metrics").body

    def fault(expr):
        d = cached(gpu_with, tmp_path, "--lost-exit-delay", 4)
        api = d.client()
        other = api.clone(session=api.expect(201, api.post("/v1/sessions", {})).json()["id"])
        for c in api, other:
            c.create(name="u", data=[1.0, 2.0, 3.0])
            c.create(name="v", data=[1.0, 2.0])  # of another length: no single kernel may take the place of both
            c.expect(200, c.post("/v1/sessions/default/sync", {}))
        for refused in known:
            api.fails(422, "plan_faulted", ask_of(refused)(api))
        value = Waiting(d, tmp_path / "fail", api, "/v1/evaluate", {"expr": expr, "inline": True})
        if not known:  # the second one is suspected, and has the device to itself
            other.expect(200, ask_of("u/5")(other))
        (tmp_path / "fail.go").touch()
        api.fails(503, "device_lost", value.end())
        other.close()
        api.close()
        lost(d)
        (tmp_path / "fail.go").unlink()
        return (tmp_path / "kernels" / "faulted").read_text()

    d = cached(gpu_with, tmp_path)
    api = d.client()
    api.create(name="u", data=[1.0, 2.0, 3.0])
    until(lambda: wholes(api))
    api.close()
    d.stop()
    known = []
    kept = fault("v - max(u)")
    assert kept.count("\npart ") == 2 and kept.count(" plan-of-2 ") == 1 == kept.count("\nrefused "), kept
    known = ["v - max(u)"]
    kept = fault("v * max(u)")
    assert kept.count("\npart ") == 2 and kept.count("\nrefused ") == 3, kept
    assert kept.count(" reduce-all ") == 1 and kept.count(" plan-of-2 ") == 2
    known += ["v * max(u)", "max(u)"]
    api = cached(gpu_with, tmp_path).client()
    api.create(name="u", data=[1.0, 2.0, 3.0])
    api.create(name="v", data=[1.0, 2.0])
    for expr in known:
        api.fails(422, "plan_faulted", ask_of(expr)(api))
    for _ in range(30):  # the single kernel would be there soon
        assert "a kernel that this needs" in api.fails(422, "kernel_faulted", ask_of("u/9 - max(u)")(api))["detail"]
    api.expect(200, ask_of("u - 3")(api))
    api.close()


def test_no_kernel_is_to_blame_for_the_memory_s_errors(gpu_with, tmp_path):
    r, d = fails_once(gpu_with, tmp_path, ask_of("u*3 - u/7"), how="214 async")
    assert r.status == 503
    line, = lines(d, "on the device when it was lost")
    assert "flat " in line and "refused" not in line and not (tmp_path / "kernels" / "faulted").exists()


def test_a_launch_that_fails_at_once_is_named(gpu_with, tmp_path):
    r, d = fails_once(gpu_with, tmp_path, ask_of("u*3 - u/7"), how="716")
    assert "being launched" in r.json()["detail"]
    line, = lines(d, "being launched when the device was lost")
    assert "u*3 - u/7" in line and " refused" not in line
    assert "\nsuspect " in (tmp_path / "kernels" / "faulted").read_text()
