"""What the tests of ghost cells compare with: NumPy's spelling of the contract's boundaries."""
import numpy as np

NONE = {"type": "none"}


def dirichlet(v):
    return {"type": "dirichlet", "value": v}


def neumann(d):
    return {"type": "neumann", "value": d}


def filled(whole, ghost, boundary, spacing=None):
    """`whole` (interior and ghosts) with its ghosts filled: axis 0 over the others' interior, then
    axis 1 over what is filled by then, and on."""
    out = np.array(whole)
    kind = out.dtype.kind
    work = out.dtype if kind in "fc" else np.dtype("float64")
    for axis, g in enumerate(ghost):
        n = out.shape[axis] - 2 * g
        h = 1.0 if spacing is None else spacing[axis]
        region = tuple(slice(None) if a < axis else slice(ghost[a], out.shape[a] - ghost[a])
                       for a in range(out.ndim))

        def cells(index):
            return region[:axis] + (index,) + region[axis + 1:]

        faces = boundary[axis]
        for side in (0, 1):
            face = {"type": "periodic"} if faces == "periodic" else faces[side]
            for k in range(1, g + 1):
                at = g - k if side == 0 else g + n - 1 + k
                if face["type"] == "none":
                    continue
                if face["type"] == "periodic":
                    out[cells(at)] = out[cells(at + n if side == 0 else at - n)]
                    continue
                phi = out[cells(g + k - 1 if side == 0 else g + n - k)].astype(work)
                v = face["value"]
                v = complex(*v) if isinstance(v, list) else v
                with np.errstate(all="ignore"):
                    if face["type"] == "dirichlet":
                        new = work.type(2 * v) - phi
                    else:
                        step = work.type((2 * k - 1) * h * v)
                        new = phi - step if side == 0 else phi + step
                out[cells(at)] = cast(new, out.dtype)
    return out


def cast(x, dtype):
    """astype as the contract has it: truncates, saturates, NaN is 0."""
    if dtype.kind not in "iu" or x.dtype.kind not in "f":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    x = np.trunc(np.nan_to_num(x, nan=0, posinf=np.inf, neginf=-np.inf))
    low, high = x <= info.min, x >= info.max
    out = np.where(low | high, 0, x).astype(dtype)
    out[low], out[high] = info.min, info.max
    return out
