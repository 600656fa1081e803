#!/usr/bin/env python3
"""The tests of the Python client beside other libraries of the versions below: dask, xarray, netCDF4, SciPy and others.

    with_libraries.py ARRAYD [PYTEST ARGUMENT…]

The packages below are installed into an environment in a folder that git ignores (build-libraries), and stay there. Exit status: pytest's,
or 77 when they cannot be fetched.
"""
import os
import pathlib
import subprocess
import sys

from array_api import ROOT, NotHere, done

PACKAGES = ["numpy==2.4.6", "dask==2026.8.0", "distributed==2026.8.0", "xarray==2026.9.0", "pandas==3.1.1", "scipy==1.17.1", "scikit-learn==1.9.1",
            "einops==0.8.2", "matplotlib==3.11.2", "netCDF4==1.7.5.1.post1", "h5py==3.16.0", "pytest==9.2.0", "fastjsonschema==2.22.3", "jsonschema==4.26.0",
            "pyyaml==6.0.4"]
TESTS = [ROOT / "tests" / "http" / f"test_client_python_{what}.py" for what in ("dask", "files", "labels", "libraries", "numpy", "xarray")]


def fetch(folder):
    """Python with what the tests need."""
    folder.mkdir(exist_ok=True)
    python, stamp = folder / "venv" / "bin" / "python", folder / "packages"
    if not stamp.exists() or stamp.read_text().split() != PACKAGES:
        done(sys.executable, "-m", "venv", "--clear", folder / "venv")
        done(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        stamp.write_text("\n".join(PACKAGES))
    return python


def main():
    try:
        python = fetch(ROOT / "build-libraries")
    except NotHere as e:
        print(f"the libraries cannot be fetched: {e}", file=sys.stderr)
        return 77
    return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *sys.argv[2:]],
                          env={**os.environ, "ARRAYD_BIN": str(pathlib.Path(sys.argv[1]).resolve())}).returncode


if __name__ == "__main__":
    sys.exit(main())
