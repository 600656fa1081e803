"""Which kernels a case was made of, as explain tells them: by form, rank, type, fields and boundary."""
import collections
import re

MODES = ("self", "clamp", "wrap", "reflect", "symmetric", "constant", "ghost")


def kernel(k):
    """(form, rank, types, written, read only, boundary) of one of explain's kernels."""
    ir = k["ir"]
    inputs = dict(re.findall(r"^  in(\d+) = (slot\d+) ", ir, re.M))
    types = set(re.findall(r"^  in\d+ = slot\d+ (\w+) ", ir, re.M)) | set(re.findall(r"-> slot\d+ (\w+) ", ir))
    outputs = re.findall(r"-> (slot\d+) .*?(?: feeds in(\d+))?$", ir, re.M)
    fed = {inputs[number] for _, number in outputs if number}
    still = set(inputs.values()) - fed - {slot for slot, _ in outputs}
    used = set(re.findall(r"^  %\d+ = (?:load in\d+ at|inside) (ctx\d+)", ir, re.M))
    modes = {mode for ctx, offsets, mode in re.findall(r"^  (ctx\d+) = .* shift \(([^)]*)\) (\w+)$", ir, re.M)
             if ctx in used and re.search(r"[1-9]", offsets)}
    boundary = "none" if not modes else modes.pop() if len(modes) == 1 else "mixed"
    return k["shape"], len(k["iteration"]), types, len(outputs), len(still), boundary


class Tables:
    """How often each cell was reached."""

    def __init__(self):
        self.types, self.fields, self.boundaries = (collections.Counter() for _ in range(3))

    def add(self, kernels):
        for k in kernels:
            if 0 in k["iteration"]:
                continue
            form, rank, types, written, still, boundary = kernel(k)
            for t in types:
                self.types[form, rank, t] += 1
            self.fields[form, rank, (written, still)] += 1
            self.boundaries[form, rank, boundary] += 1

    def dump(self):
        return [[[*key[:2], list(key[2]) if isinstance(key[2], tuple) else key[2], n] for key, n in table.items()]
                for table in (self.types, self.fields, self.boundaries)]

    def join(self, dumped):
        for table, rows in zip((self.types, self.fields, self.boundaries), dumped):
            for form, rank, what, n in rows:
                table[form, rank, tuple(what) if isinstance(what, list) else what] += n

    def print(self, out):
        for title, table in (("form, rank, type", self.types), ("form, rank, fields written + read only", self.fields),
                             ("form, rank, boundary", self.boundaries)):
            columns = sorted({key[2] for key in table}, key=str)
            names = [f"{c[0]}+{c[1]}" if isinstance(c, tuple) else c for c in columns]
            print(f"| {title} | " + " | ".join(names) + " |", file=out)
            for form, rank in sorted({key[:2] for key in table}):
                row = [str(table[form, rank, c] or "") for c in columns]
                print(f"| {form} {rank}-D | " + " | ".join(row) + " |", file=out)
            print(file=out)
