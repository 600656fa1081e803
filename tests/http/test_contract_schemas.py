"""The schemas that replies are held against are asked in a fast way first: it says what the slow one says."""
import copy
import json
import random

import pytest
import yaml

from client import REPO, draft_7

SCHEMAS = yaml.load((REPO / "protocol/openapi.yaml").read_text(), yaml.CSafeLoader)["components"]["schemas"]
# That mean the same to both, or, what is not known as words, nothing.
KNOWN = set("""$ref additionalProperties allOf anyOf const default dependentRequired deprecated description enum example examples exclusiveMaximum
exclusiveMinimum format if items maxItems maxLength maxProperties maximum minItems minLength minProperties minimum not nullable oneOf pattern patternProperties
prefixItems properties propertyNames readOnly required then title type uniqueItems""".split())


def words(schema):
    if not isinstance(schema, dict):
        return
    yield from schema
    for key in ("properties", "patternProperties"):
        for x in schema.get(key, {}).values():
            yield from words(x)
    for key in ("additionalProperties", "items", "not", "if", "then", "propertyNames"):
        yield from words(schema.get(key))
    for key in ("allOf", "anyOf", "oneOf", "prefixItems"):
        for x in schema.get(key, []):
            yield from words(x)


def test_words():
    for name, schema in SCHEMAS.items():
        assert set(words(schema)) <= KNOWN, name
        assert not {"$ref", "not"} <= set(schema), name  # what is beside a reference is only said to people


ODD = [None, True, 0, -1, 1.5, 1 << 70, "", "x", [], [1, "a"], {}, {"x": 1}, "float32", [[1, 2], [3, 4]]]


def changed(value, rng):
    """A copy with one thing in it another, more or less."""
    value = copy.deepcopy(value)
    at = value
    while isinstance(at, (dict, list)) and at:
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.8:
            at = at[key]
            continue
        what = rng.randrange(4)
        if what == 0:
            del at[key]
        elif what == 1 and isinstance(at, dict):
            at[rng.choice(["x", "name", "dtype", "steps", "results", "statements"])] = rng.choice(ODD)
        elif what == 1:
            at.append(rng.choice(ODD))
        else:
            at[key] = rng.choice(ODD)
        break
    return value


@pytest.mark.parametrize("seed", range(6))
def test_both_say_the_same(api, seed):
    api.create(name="a", shape=[40, 50], dtype="float32", dims=["y", "x"], attrs={"units": "m"})
    api.create(name="g", shape=[8, 8], dtype="float64", spacing=[1, 2])
    program = {"body": ["a = a + 1"], "steps": 3}
    job = api.expect(202, api.post("/v1/programs", program)).json()
    found = [("Array", api.meta("a")), ("Array", api.meta("g")), ("Info", api.info()), ("Job", job), ("ProgramRequest", program),
             ("EvaluateRequest", {"expr": "a + b", "let": [["c", "a*2"]], "bind": {"b": "a"}, "name": "r"}),
             ("EvaluateRequest", {"statements": ["b = a + 1"], "results": ["b"]}), ("CreateRequest", {"shape": [3], "dtype": "int8", "fill": 1}),
             ("Problem", api.get("/v1/arrays/none").json()), ("Session", api.get("/v1/sessions").json()["sessions"][0])]
    rng, verdicts = random.Random(seed), {True: 0, False: 0}
    for name, value in found:
        schema = {"$ref": f"#/components/schemas/{name}"}
        api.contract.validate(schema, value, name)
        slow, fast = api.contract.validators[json.dumps(schema)]
        assert fast(value)
        for _ in range(60):
            x = changed(value, rng)
            verdicts[slow.is_valid(x)] += 1
            assert not fast(x) or slow.is_valid(x), (name, [e.message for e in slow.iter_errors(x)], x)  # and what the fast one refuses the slow one judges
    assert min(verdicts.values()) > 60, verdicts


def test_words_that_are_others():
    assert draft_7({"prefixItems": [{"type": "string"}], "items": False}) == {"items": [{"type": "string"}], "additionalItems": False}
    assert draft_7({"allOf": [{"prefixItems": [{}]}], "dependentRequired": {"a": ["b"]}}) == {"allOf": [{"items": [{}]}], "dependencies": {"a": ["b"]}}
