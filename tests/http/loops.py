"""Random programs that are loops, as source of a function of a namespace, `f(xp)`: for NumPy and for the client."""
import random

LOOKS = (
    "if i % {n} == 0: looked.append(np.asarray({x}).copy())",
    "if i % {n} == 0: looked.append(float(xp.sum({x})))",
    "looked.append(float(xp.sum({x})))",
    "looked.append(float(xp.sum({x}))); looked.append(float(xp.max({y})))",
    "if float(xp.sum({x})) > {m} and i % 5 == 3: {x} = {x} + 1",
    "if float(xp.max({x})) > {m}: break",
    "kept.append({x} + 0)",
    "if i % 6 == 0: kept.append({x} + 0)",
    "kept.append(xp.sum({x}))",
    "looked.append(np.asarray({x}[1:3]).copy())",
    "looked.append({x}[..., -2:].tolist()); looked.append(float(xp.min({y})))",
    "s3 = {x}[1:3]; looked.append(np.asarray(s3).copy()); {y} = {y} + xp.max(s3)",
    "looked += [float(f(t)) for t in ({x}, {y}) for f in (xp.max, xp.min, xp.sum)]",
)

COMPLEX = (  # of whole numbers, whose sums are exact in any order
    "z = z*(1+1j) + {x}", "z += {x}", "z[{p}] = xp.conj(z)[{p}] + 1", "z[{p}] *= 1j", "z = xp.roll(z, 1, axis=0) - z*1j", "v = z[{p}]; v += {m}",
    "z = xp.where({x} > 2, z, {m}j)",
)
COMPLEX_LOOKS = ("looked.append(complex(xp.sum(z)))", "if i % {n} == 0: looked.append(np.asarray(z).copy())", "kept.append(z + 0)", "kept.append(abs(z))")
BOOL = (
    "mask = {x} > {m}", "mask = mask ^ xp.roll(mask, 1, axis=0)", "mask[{p}] = {x}[{p}] > {m}", "mask = ~mask & ({x} < 5)", "mask |= {x} == 2",
    "{x} = xp.where(mask, {y}, {v0})", "{x} = {x} + mask", "v = mask[{p}]; v ^= True", "{x}[mask] = {m}",
)
BOOL_LOOKS = ("if bool(xp.any(mask)): {x} = {x} + 1", "looked.append(int(xp.sum(mask)))", "kept.append(~mask)", "if i % {n} == 0: looked.append(np.asarray(mask).copy())")
SHARED = (  # a number of the daemon's that several operations have
    "q = xp.max({x}); {x} = {x} - q + {v0}; {y} = {y} + q", "q = {x}[{o}]; {x} = {x} + q; {y} = {y} - q*2", "{x} = {x}*c0 + c0; {y} = {y} - c0", "{x}[{p}] += c0",
    "q = xp.min({y}) + c0; {x} = xp.where({x} > q, q, {x}) + q",
)


class Program:
    def __init__(self, seed):
        r = self.r = random.Random(seed)
        self.rank = r.choice((1, 2, 2))
        self.n = r.randint(4, 9)
        self.dtype = r.choice(("float64", "float32", "int32", "float64", "int64", "int16", "float16"))
        self.names = ["a", "b", "c"][:r.randint(1, 3)]
        self.scalar = r.random() < 0.3 and self.dtype[-2:] in ("32", "64")  # s would make the others wider
        self.invariant = r.random() < 0.5
        self.complex, self.bool, self.shared = (r.random() < 0.25 for _ in range(3))
        lines = self.beginning()
        for _ in range(r.randint(1, 2)):
            lines += self.loop()
        results = r.sample(self.names, len(self.names)) + ["s"] * self.scalar + ["z"] * self.complex + ["mask"] * self.bool
        lines.append(f"return [np.asarray(x) for x in ({', '.join(results)},)] + [np.asarray(x) for x in kept] + looked")
        self.source = "def f(xp):\n" + indented(lines)

    def function(self, **globals_):
        exec(self.source, globals_)
        return globals_["f"]

    def numbers(self, modulus):
        shape = (self.n,) * self.rank
        return f"xp.asarray(np.arange({self.n ** self.rank}).reshape({shape}).astype('{self.dtype}') % {modulus})"

    def beginning(self):
        shape, lines = (self.n,) * self.rank, [f"w = {self.numbers(3)}", "kept, looked = [], []"]
        for k, x in enumerate(self.names):
            lines.append(f"{x} = " + self.r.choice([self.numbers(7 + k), f"xp.ones({shape}, dtype=xp.{self.dtype})", f"{self.names[0] if k else 'w'} + 1",
                                                    f"xp.zeros({shape}, dtype=xp.{self.dtype}) + {k + 1}"]))
        wide = "complex64" if self.dtype in ("float32", "float16") else "complex128"
        return lines + ["k = w*2 - 1"] * self.invariant + ["s = xp.sum(w)"] * self.scalar + [f"z = xp.asarray(np.full({shape}, 1+2j, '{wide}'))"] * self.complex \
            + ["mask = w > 1"] * self.bool + [f"c0 = xp.asarray(np.asarray(2, '{self.dtype}'))"] * self.shared

    def value(self):
        x, y = self.r.choice(self.names), self.r.choice(self.names)
        return self.r.choice([x, f"xp.roll({x}, {self.r.choice((1, -1))}, axis=0)", "w", "k" if self.invariant else y, str(self.r.randint(1, 3)),
                              f"({x} - {y})", "(i % 3)", "i", f"xp.where({x} > 2, {y}, 1)"] + ["s"] * self.scalar)

    def part(self):
        return self.r.choice([self.middle, ", ".join(["0"] + [":"] * (self.rank - 1)), ", ".join(["-1"] + [":"] * (self.rank - 1)),
                              ", ".join(["::2"] * self.rank), "1:"])

    @property
    def middle(self):
        return ", ".join(["1:-1"] * self.rank)

    def statement(self):
        x, p = self.r.choice(self.names), self.part()
        others = [n for n in self.names if n != x]
        y = self.r.choice(others or self.names)
        choice = ["{x} = {v0} + {v1} - {v2}*{v3} + 0*{x}", "{x} += {v0} - {v1}", "{x} = {x} - {y} + {v0}", "{x}[{p}] = {y}[{p}] + 1", "{x}[{p}] += {m}", "{x}[{p}] = i % 4",
                  "v = {x}[{p}]; v += 1", "t = xp.zeros_like({x}); t[{q}] = {y}[{q}]; {x} = {x} + t"]
        choice += ["{x}, {y} = {y}, {x}", "{x}, {y} = {x} + {x} - {y} + w, {x}"] * bool(others)
        choice += ["s = s*1 + xp.sum({x}) - xp.sum({y})"] * self.scalar
        choice += [*COMPLEX] * self.complex + [*BOOL] * self.bool + [*SHARED] * self.shared
        values = {f"v{k}": self.value() for k in range(4)}
        return self.r.choice(choice).format(x=x, y=y, p=p, q=self.middle, o=", ".join(["1"] * self.rank), m=self.r.randint(1, 3), **values)

    def bounded(self):
        return [f"{x} = xp.where(abs({x}) > 1000, {x}*0 + 1, {x})" for x in self.names] + ["s = xp.where(abs(s) > 1000, s*0, s)"] * self.scalar \
            + ["z = xp.where(xp.real(z*xp.conj(z)) > 1000000, z*0 + 1, z)"] * self.complex  # NumPy's abs is not exact

    def loop(self):
        r = self.r
        body = [self.statement() for _ in range(r.randint(1, 4))]
        if r.random() < 0.2:
            body += [f"for _ in range({r.randint(2, 12)}):", *("    " + line for line in [self.statement()] + self.bounded())]
        body += self.bounded()
        if r.random() < 0.7:
            looks = [*LOOKS] + [*COMPLEX_LOOKS] * self.complex + [*BOOL_LOOKS] * self.bool
            body.append(r.choice(looks).format(n=r.choice((1, 1, 2, 7)), m=r.randint(3, 50), x=r.choice(self.names), y=r.choice(self.names)))
        return [f"for i in range({r.choice((2, 3, 5, 9, 17, 40, 60))}):", *("    " + line for line in body)]


def indented(lines):
    return "".join(f"    {line}\n" for line in lines)
