"""Which kernels a case was made of, as explain tells them: by form and rank, and then type, fields, boundary, and what a
thread has."""
import collections
import re

MODES = ("self", "clamp", "wrap", "reflect", "symmetric", "constant", "ghost")


def kernel(k, assigned):
    """(form, rank, types, written, read only, boundary) of one of explain's kernels. Read only are the operands that
    the case does not assign."""
    ir = k["ir"]
    types = set(re.findall(r"^  in\d+ = slot\d+ (\w+) ", ir, re.M)) | set(re.findall(r"-> slot\d+ (\w+) ", ir))
    outputs = re.findall(r"-> slot\d+ ", ir)
    still = {x["name"] for x in k["inputs"]} - set(assigned)
    used = set(re.findall(r"^  %\d+ = (?:load in\d+ at|inside) (ctx\d+)", ir, re.M))
    modes = {mode for ctx, offsets, mode in re.findall(r"^  (ctx\d+) = .* shift \(([^)]*)\) (\w+)$", ir, re.M)
             if ctx in used and re.search(r"[1-9]", offsets)}
    boundary = "none" if not modes else modes.pop() if len(modes) == 1 else "mixed"
    return k["shape"], len(k["iteration"]), types, len(outputs), len(still), boundary


# What forms are for: the cells that a whole run has to reach. On a CPU nothing makes several steps in one pass or has
# a form for windows, and seldom are several statements one kernel.
ALL = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64"
       " complex128").split()
ANY = (*MODES, "mixed")
FORMS = {
    "flat": dict(ranks=range(1, 6), types=ALL, written=range(1, 4), still=range(4), boundaries=["none"]),
    "rows": dict(ranks=range(2, 6), types=ALL, written=range(1, 4), still=range(4), boundaries=["none"]),
    "tile": dict(ranks=range(2, 6), types=ALL, written=[1], still=range(1, 3), boundaries=["none"]),
    "stencil": dict(ranks=range(1, 6), types=ALL, written=range(1, 4), still=range(4), boundaries=ANY),
    "window": dict(ranks=range(1, 6), types=ALL, written=[1], still=range(1, 4),
                   boundaries=[m for m in ANY if m != "ghost"]),
    "steps": dict(ranks=range(1, 4), types=[t for t in ALL if t != "complex128"], written=range(1, 7), still=range(6),
                  boundaries=[m for m in ANY if m != "ghost"]),
    "reduce-all": dict(ranks=range(1, 6), types=ALL, written=[1], still=range(1, 3), boundaries=["none", *ANY]),
    "reduce-inner": dict(ranks=range(2, 6), types=ALL, written=[1], still=range(1, 3), boundaries=["none", *ANY]),
    "reduce-outer": dict(ranks=range(2, 6), types=ALL, written=[1], still=range(1, 3), boundaries=["none", *ANY]),
    "scan-inner": dict(ranks=range(1, 6), types=ALL, written=[1], still=range(2), boundaries=["none"]),
    "scan-outer": dict(ranks=range(2, 6), types=ALL, written=[1], still=range(2), boundaries=["none"]),
}
WAYS = ("flat", "rows", "stencil", "steps")


def ways(form, rank):
    """How a thread of a GPU may have its part: by vectors or single elements, one row or several, with arrays that are
    only read or without."""
    rows = ["row", "rows"] if (form, rank) == ("steps", 3) or form == "stencil" and rank > 1 else ["row"]
    return [f"{e} {r} {s}" for e in ("vector", "single") for r in rows for s in ("still", "alone")]


def way(k, still):
    """The one of a kernel; None where its text does not say."""
    e, r = (re.search(rf"^#define {name} (\d+)", k["source"], re.M) for name in ("AR_E", "AR_R"))
    return e and (f"{'vector' if int(e[1]) > 1 else 'single'} {'rows' if r and int(r[1]) > 1 else 'row'} "
                  f"{'still' if still else 'alone'}")


class Tables:
    """How often each cell was reached."""

    def __init__(self):
        self.types, self.fields, self.boundaries, self.ways = (collections.Counter() for _ in range(4))

    def add(self, kernels, assigned):
        for k in kernels:
            if 0 in k["iteration"]:
                continue
            form, rank, types, written, still, boundary = kernel(k, assigned)
            for t in types:
                self.types[form, rank, t] += 1
            self.fields[form, rank, (written, still)] += 1
            self.boundaries[form, rank, boundary] += 1
            if way(k, still):
                self.ways[form, rank, way(k, still)] += 1

    def empty(self, backend):
        """The cells of FORMS that were not reached."""
        missing = []
        for form, f in FORMS.items():
            if form in ("steps", "window") and backend == "cpu":
                continue
            for rank in f["ranks"]:
                fields = [(w, s) for w in f["written"] for s in f["still"] if w == 1 or backend != "cpu"]
                for table, columns in ((self.types, f["types"]), (self.fields, fields), (self.boundaries, f["boundaries"]),
                                       (self.ways, ways(form, rank) if backend != "cpu" and form in WAYS else [])):
                    missing += [(form, rank, c) for c in columns if not table[form, rank, c]]
        return missing

    def dump(self):
        return [[[*key[:2], list(key[2]) if isinstance(key[2], tuple) else key[2], n] for key, n in table.items()]
                for table in (self.types, self.fields, self.boundaries, self.ways)]

    def join(self, dumped):
        for table, rows in zip((self.types, self.fields, self.boundaries, self.ways), dumped):
            for form, rank, what, n in rows:
                table[form, rank, tuple(what) if isinstance(what, list) else what] += n

    def print(self, out):
        for title, table in (("form, rank, type", self.types), ("form, rank, fields written + read only", self.fields),
                             ("form, rank, boundary", self.boundaries), ("form, rank, a thread's part", self.ways)):
            if not table:
                continue
            columns = sorted({key[2] for key in table}, key=str)
            names = [f"{c[0]}+{c[1]}" if isinstance(c, tuple) else c for c in columns]
            print(f"| {title} | " + " | ".join(names) + " |", file=out)
            for form, rank in sorted({key[:2] for key in table}):
                row = [str(table[form, rank, c] or "") for c in columns]
                print(f"| {form} {rank}-D | " + " | ".join(row) + " |", file=out)
            print(file=out)
