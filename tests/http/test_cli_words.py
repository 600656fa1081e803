"""arrayd-cli: where options may stand on a command line, and numbers that JSON has not."""
import json
import shlex

import numpy as np
import pytest

from cli import cli

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def run(daemon, api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("f.npy", np.arange(6.0))
    np.arange(6.0).tofile("f.bin")
    call = cli(daemon)

    def ok(*words, **more):
        done = call(*words, **more)
        assert done.status == 0, (words, done)
        return done

    ok("put", "f.npy")
    ok.fails = call
    return ok


def test_options_between_names(run):
    assert run("put", "f.npy", "--json", "g").out.startswith("{")
    assert run("put", "f.bin", "--raw", "--dtype", "float64", "h", "--shape", "2,3").out == "h\n"
    run("get", "f", "--raw", "out.bin")
    assert np.fromfile("out.bin").tolist() == list(range(6))
    run("get", "--slice", "1:3", "f", "-q", "part.npy")
    assert np.load("part.npy").tolist() == [1, 2]
    lines = run("ls", "f", "-l", "g").out.splitlines()
    assert len(lines) == 3 and "float64" in lines[1]
    assert json.loads(run("info", "f", "--json", "g").out)[1]["name"] == "g"
    assert run("rm", "g", "-f", "nobody", "h").status == 0
    assert run("ls").out == "f\n"
    assert run("eval", "--bind", "k=2", "sum(f)*k", "--json").out.startswith("{")
    program = run("run", "-b", "u=f", "-", "--steps", "3", stdin=b"u += 1\n")
    assert program.status == 0 and run("eval", "max(f)").out == "8.0\n"
    assert json.loads(run("top", "-n", "1", "-q", "--json").out) and "arrayd-cli" in run("completion", "-q", "bash").out


def test_what_begins_with_a_minus(run):
    assert run("eval", "--", "-f[1]").out == "-1.0\n"
    assert run("eval", "-b", "k=2", "--", "-k").out == "-2\n"
    assert run("eval", "-3").out == "-3\n"
    for expr in ("-1+2", "-f[1]", "-x", "-b**2", "-sum(f)*2", "--f"):
        said = run.fails("eval", "-q", expr).err
        assert "follow --: arrayd-cli eval -- " + shlex.quote(expr) + "\n" in said, said
    for words in (["eval"], ["eval", "-q"], ["eval", "-bk=2"], ["eval", "--bind=k=2"], ["get", "--raw"], ["eval", "-q", "--", "-1", "2"]):
        assert "follow --" not in run.fails(*words).err


@pytest.mark.parametrize("words, said", [
    (["get"], "required: REF"), (["get", "--raw"], "required: REF"), (["get", "f", "a", "--raw", "b"], "unrecognized arguments: b"),
    (["get", "f", "--nothing", "a"], "unrecognized arguments: --nothing"), (["rm", "-f"], "required: REF"),
    (["rm", "f", "--unnamed"], "takes no REF"), (["rm", "f", "--yes"], "--yes is for --unnamed"), (["rm", "--yes"], "required: REF"),
    (["put", "f.npy", "--dtype"], "expected one argument"), (["eval", "1", "--name", "a", "--out", "b"], "not allowed with"),
    (["completion", "-q", "csh"], "invalid choice")])
def test_mistakes(run, words, said):
    done = run.fails(*words)
    assert done.status == 2 and said in done.err, done


def test_numbers_of_every_size(run):
    for k in (2**53, 2**53 + 1, -(2**62) - 1, 2**64 - 1):
        assert run("eval", "k", "--bind", f"k={k}").out == f"{k}\n"
    for text, value in (("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"), (str(2**60 + 1), "1.152921504606847e+18")):
        with open("n.json", "w") as f:
            f.write('{"body": ["u = u*0 + k"], "bind": {"u": "f", "k": %s}, "steps": 1}' % text)
        run("run", "n.json")
        assert run("eval", "u[0]", "-b", "u=f").out == f"{value}\n"
        run("put", "f.npy")
    with open("n.json", "w") as f:
        f.write('{"body": ["f += 1"], "steps": NaN}')
    done = run.fails("run", "n.json")
    assert done.status == 1 and done.err == "arrayd-cli: n.json: steps: an integer was expected here, but this is a string\n"
