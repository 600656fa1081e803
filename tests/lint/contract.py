"""protocol/openapi.yaml: sound in itself, and the same as the tables the daemon is made from."""
import json
import re
import sys

from lintlib import ROOT, SKIPPED, finish, read

try:
    import jsonschema
    import yaml
except ImportError as e:
    print(e)
    sys.exit(SKIPPED)

findings = []
text = read("protocol/openapi.yaml")


def no_duplicates(pairs):
    keys = [k for k, _ in pairs]
    findings.extend(f"openapi.yaml: duplicate key {k}" for k in set(keys) if keys.count(k) > 1)
    return dict(pairs)


doc = json.loads(text, object_pairs_hook=no_duplicates)
if yaml.safe_load(text) != doc:
    findings.append("openapi.yaml: YAML and JSON readers disagree about it")
METHODS = ("get", "put", "post", "patch", "delete")


def resolve(ref):
    node = doc
    for step in ref[2:].split("/"):
        node = node[step]
    return node


def walk(node, path=""):
    yield path, node
    if isinstance(node, dict):
        for k, v in node.items():
            yield from walk(v, f"{path}/{k}")
    elif isinstance(node, list):
        for i, v in enumerate(node):
            yield from walk(v, f"{path}/{i}")


used = {f"#/components/securitySchemes/{name}" for either in doc["security"] for name in either}
for path, node in walk(doc):
    ref = node.get("$ref") if isinstance(node, dict) else None
    if isinstance(ref, str):
        used.add(ref)
        try:
            resolve(ref)
        except KeyError:
            findings.append(f"openapi.yaml{path}: nothing is at {ref}")
for kind, members in doc["components"].items():
    for name in members:
        if f"#/components/{kind}/{name}" not in used and not (kind == "responses" and "Problem" in name):
            findings.append(f"openapi.yaml: {kind}/{name} is never used")

# Examples satisfy their schemas.
for path, node in walk(doc["paths"]):
    if not (isinstance(node, dict) and "schema" in node):
        continue
    examples = [e["value"] for e in node.get("examples", {}).values()]
    if "example" in node:
        examples.append(node["example"])
    if examples:
        validator = jsonschema.Draft202012Validator({**node["schema"], "components": doc["components"]})
        for example in examples:
            findings.extend(f"openapi.yaml{path}: example: {e.message[:200]}"
                            for e in validator.iter_errors(example))
for name, schema in doc["components"]["schemas"].items():
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as e:
        findings.append(f"openapi.yaml: schema {name}: {e.message}")
ids = [op["operationId"] for item in doc["paths"].values() for m, op in item.items() if m in METHODS]
findings.extend(f"openapi.yaml: operationId {i} twice" for i in set(ids) if ids.count(i) > 1)
for template, item in doc["paths"].items():
    for method in METHODS:
        if method in item:
            given = item.get("parameters", []) + item[method].get("parameters", [])
            given = [resolve(p["$ref"]) for p in given]
            inside = {p["name"] for p in given if p["in"] == "path"}
            if inside != set(re.findall(r"\{(\w+)\}", template)):
                findings.append(f"openapi.yaml: {method} {template}: path parameters are {inside}")

# err.def: every code, under its status.
for status, code in set(re.findall(r'^ERR\(\w+, (\d+), "(\w+)"', read("compute/base/err.def"), re.M)):
    if code not in doc["components"]["schemas"]["ErrorCode"]["enum"]:
        findings.append(f"openapi.yaml: ErrorCode lacks {code}")
    response = doc["components"]["responses"].get(f"Problem{status}")
    if response is None:
        findings.append(f"openapi.yaml: no response Problem{status}")
    elif f'"{code}"' not in json.dumps(response):
        findings.append(f"openapi.yaml: Problem{status} lacks {code}")
known = set(re.findall(r'^ERR\(\w+, \d+, "(\w+)"', read("compute/base/err.def"), re.M))
findings.extend(f"openapi.yaml: {c} is not in err.def"
                for c in set(doc["components"]["schemas"]["ErrorCode"]["enum"]) - known)

# dtype.def
dtypes = re.findall(r'^DTYPE\(\w+, "(\w+)"', read("compute/type/dtype.def"), re.M)
if sorted(dtypes) != sorted(doc["components"]["schemas"]["Dtype"]["enum"]):
    findings.append("openapi.yaml: Dtype and dtype.def differ")

# routes.c
routes = ROOT / "server" / "api" / "routes.c"
if routes.exists():
    table = set(re.findall(r'\{\s*"(GET|PUT|POST|PATCH|DELETE)",\s*"([^"]+)"', routes.read_text()))
    table = {(m, re.sub(r"\{\w+\}", "{}", p)) for m, p in table}
    here = {(m.upper(), re.sub(r"\{\w+\}", "{}", p)) for p, item in doc["paths"].items()
            for m in item if m in METHODS}
    findings.extend(f"openapi.yaml: {m} {p} is in routes.c only" for m, p in sorted(table - here))
    findings.extend(f"routes.c: {m} {p} is in openapi.yaml only" for m, p in sorted(here - table))
else:
    findings.append("server/api/routes.c is missing")
finish(findings, "contract")
