"""Every C file is as clang-format leaves it (.clang-format in the root)."""
import os
import shutil
import subprocess
import sys

from lintlib import ROOT, SKIPPED, finish, sources

tool = os.environ.get("CLANG_FORMAT") or shutil.which("clang-format")
if not tool:
    print("clang-format is not installed")
    sys.exit(SKIPPED)
files = [str(p) for p in sources(".c", ".h")]
result = subprocess.run([tool, "--dry-run", "--Werror", *files], cwd=ROOT, capture_output=True, text=True)
findings = sorted({line.split(": ")[0] for line in result.stderr.splitlines() if "error:" in line})
if result.returncode and not findings:
    findings = [result.stderr]
finish(findings, "format")
