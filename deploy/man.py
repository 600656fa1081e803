"""arrayd.1 from deploy/arrayd.1.in and the daemon's own --help: man.py ARRAYD TEMPLATE NAME=VALUE…

The options are told once, in server/config/config.c.
"""
import re
import subprocess
import sys


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def options(help_text):
    out = []
    for name, argument, text in re.findall(r"^  --([a-z-]+)(?: (\S+))?\n        (.*)$", help_text, re.M):
        argument = f' " {roff(argument)}"' if argument else ""
        out.append(f'.TP\n.BI \\-\\-{roff(name)}{argument}\n{roff(text)}')
    return "\n".join(out)


binary, template, *values = sys.argv[1:]
done = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True)
page = open(template, encoding="utf-8").read().replace("@options@", options(done.stdout))
for name, value in (v.split("=", 1) for v in values):
    page = page.replace(f"@{name}@", roff(value))
sys.stdout.write(page)
