"""What an expression may cost: refused with the bound and its place before anything runs, whatever asks for it."""
import time

import numpy as np

BOUND = {"cuda": 4 * 10**15, "cpu": 4 * 10**13}
FOREVER = "sum(broadcast_to(a, [2**50, 2]) + b)"


def bound_of(api):
    return BOUND[api.info()["backend"]]


def refused(api, path, body, pointer, offset=None, bound=None, **ask):
    bound = bound or f"{bound_of(api):.0e}"
    before = time.monotonic()
    problem = api.fails(422, "expression_too_large", api.post(path, body, **ask))
    assert time.monotonic() - before < 5
    assert problem["pointer"] == pointer and problem.get("offset") == offset
    assert "max-cost" in problem["detail"] and bound in problem["detail"]
    return problem["detail"]


def test_work_without_end_is_refused(api):
    api.upload(np.ones(2, "float32"), "a")
    api.upload(np.zeros(2, "float32"), "b")
    assert api.info()["limits"]["max_cost"] == bound_of(api)
    text = FOREVER
    assert "6.76e+15" in refused(api, "/v1/evaluate", {"expr": text}, "/expr", 0)
    refused(api, "/v1/explain", {"expr": text}, "/expr", 0)
    refused(api, "/v1/evaluate", {"expr": text, "out": "a"}, "/expr", 0)
    refused(api, "/v1/evaluate", {"expr": "m", "let": [["m", text]]}, "/expr", 0)
    refused(api, "/v1/evaluate", {"tree": {"op": "sum", "args": [{"op": "add", "args": [
        {"op": "broadcast_to", "args": ["a", [2**50, 2]]}, "b"]}]}}, "/tree")
    assert api.download("a").tolist() == [1, 1]
    # as much in one reduction over the index alone, and in a scan
    refused(api, "/v1/evaluate", {"expr": "sum(index(0) + broadcast_to(a, [2**55, 2]))"}, "/expr", 0)
    refused(api, "/v1/evaluate", {"expr": "max(cumulative_sum(broadcast_to(a, [2**55, 2]), 0))"}, "/expr", 0)
    assert api.evaluate("sum(broadcast_to(a, [2**10, 2]))") == 2**11


def test_programs_and_statements_count_by_the_step(api):
    api.upload(np.ones(2, "float32"), "a")
    api.upload(np.zeros(2, "float32"), "b")
    refused(api, "/v1/programs", {"body": ["a += 1", f"b += {FOREVER}"], "steps": 1}, "/body/1", 0)
    refused(api, "/v1/programs", {"body": ["a += 1"], "steps": 1, "until": f"{FOREVER} > 1"}, "/until", 37)
    refused(api, "/v1/programs", {"body": ["a += 1"], "steps": 1, "record": {"s": FOREVER}}, "/record/s", 0)
    n = bound_of(api) * 9 // 32
    half = f"sum(broadcast_to(a, [{n}, 2]))"  # each of them may be, both in one step may not
    refused(api, "/v1/programs", {"body": [f"b += {half}", f"a += {half}"], "steps": 1}, "/body/1", 0)
    refused(api, "/v1/evaluate", {"statements": [f"t = {FOREVER}"], "results": ["t"]}, "/statements/0", 4)


def test_the_bound_is_an_option(daemon_with):
    c = daemon_with("--max-cost", 1000).client()
    assert c.info()["limits"]["max_cost"] == 1000
    c.upload(np.ones(100, "float32"), "a")
    assert c.evaluate("sum(exp(a))") > 0
    refused(c, "/v1/evaluate", {"expr": "sin(cos(sin(cos(sin(cos(sin(cos(sin(cos(a))))))))))"}, "/expr", 0, "1e+03")
    c.expect(200, c.post("/v1/programs?wait=1", {"body": ["t = exp(a)", "a = a + t"], "steps": 50}))
    # written out where it is used, a temporary is counted there alone
    body = [f"t{i} = exp(t{i - 1})" if i else "t0 = exp(a)" for i in range(6)]
    c.expect(200, c.post("/v1/programs?wait=1", {"body": body + ["a = t5*0"], "steps": 2}))


def test_the_nodes_of_a_program_are_bounded_together(api, daemon_with):
    """Planning takes as long as there are nodes, and a worker for it; functions make many of a short text."""
    def fails(c, path, body, pointer):
        before = time.monotonic()
        problem = c.fails(422, "expression_too_large", c.post(path, body))
        assert problem["pointer"] == pointer and "max-program-nodes" in problem["detail"], problem
        assert time.monotonic() - before < 20

    api.upload(np.ones(2), "a")
    assert api.info()["limits"]["max_program_nodes"] == 100000
    api.expect(201, api.put("/v1/functions/f", {"params": ["x"], "expr": "+".join(["sin(x)"] * 300)}))
    many = ["t = a"] + ["t = " + "+".join(f"f(t*{k})" for k in range(9)) for _ in range(200)]
    fails(api, "/v1/evaluate", {"statements": many, "results": ["t"]}, "/statements/19")
    fails(api, "/v1/explain", {"statements": many, "results": ["t"]}, "/statements/19")
    fails(api, "/v1/programs", {"body": many + ["a = t"], "steps": 1}, "/body/19")
    api.expect(204, api.delete("/v1/functions/f"))
    number = ["dt = " + "+".join(f"sqrt({k}.5)" for k in range(2500))]  # written out wherever it is named
    fails(api, "/v1/evaluate", {"statements": number + [f"t{k} = a*dt" for k in range(250)]}, "/statements/13")
    api.expect(200, api.post("/v1/explain", {"body": number + ["a = a*dt"], "steps": 1}))
    c = daemon_with("--backend", "cpu", "--max-program-nodes", 20).client()
    c.upload(np.ones(2), "a")
    program = {"body": ["a = a + 1 + 2 + 3"], "steps": 1, "record": {"s": "sum(a)"}}
    assert c.expect(202, c.post("/v1/programs", program)).json()["state"] in ("queued", "running", "done")
    program["record"]["t"] = "sum(a + 1 + 2 + 3 + 4 + 5)"
    fails(c, "/v1/programs", program, "/record/t")
    del program["record"]
    program["until"] = "sum(a + 1 + 2 + 3 + 4 + 5) > 2 + a[0] + a[1]"
    fails(c, "/v1/programs", program, "/until")
    c.close()
