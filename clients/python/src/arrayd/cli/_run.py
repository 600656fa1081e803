"""run: a program, from its text to its end."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

from .._bar import Bar, count, duration, human, steps_line
from .._errors import ArraydError, failed_at, failure_of, place_of
from .._jobs import Job, JobFailed
from .._replies import JOB
from .._requests import Request
from ._context import Context, Failure, complain
from ._eval import located
from ._formats import check_npy
from ._program import Program, read
from ._streams import NPY, download
from ._values import bound, explained, path_of


def run(context: Context) -> int:
    args = context.args
    where = "standard input" if args.file == "-" else args.file
    if args.save and args.detach:
        raise Failure("run: --save cannot be used with --detach", 2)
    if args.file == "-":
        text = sys.stdin.read()
    else:
        with open(os.path.expanduser(args.file), encoding="utf-8") as f:
            try:
                text = f.read()
            except UnicodeDecodeError as e:
                raise Failure(f"{where} is not text: {e}") from e
    program = read(text, where)
    _options(context, program)
    files = {n: text for n, text in program.bind}
    for n, text in program.bind:
        program.body.setdefault("bind", {})[n] = bound(context, n, text)
        program.places[f"/bind/{n}"] = (f"bind {n} = {files[n]}", None)
    if args.detach and context._temporary:
        raise Failure("run: a file that is bound goes when this command ends: put it first, or leave --detach away", 2)
    bind: Dict[str, Any] = program.body.get("bind") or {}
    for n, path in args.save:
        check_npy("run", path)
        if n in bind and not isinstance(bind[n], str):
            raise Failure(f"run: --save {n}: a number is bound to it", 2)
    try:
        job = Job(context.client, context.ask("POST", "/v1/programs", JOB, program.body), [])
    except ArraydError as e:
        raise located(e, program.places) from e
    if args.detach:
        print(json.dumps(job.status) if args.json else job.id)
        return 0
    try:
        return _watched(context, job, program)
    finally:
        if job.ended and not isinstance(sys.exc_info()[1], SystemExit):  # a signal that ends us wants it soon
            for n, path in args.save:
                r = Request("GET", path_of(str(bind.get(n, n)), "/data"), accept=NPY, headers=context.headers)
                context.say(f"{path}: {human(download(context, r, path, n))}")


def _options(context: Context, program: Program) -> None:
    """What the command line says comes before what the file says."""
    args, body = context.args, program.body
    for key in ("steps", "until", "until_every", "record_every"):
        value = getattr(args, key)
        if value is not None:
            body[key] = value
    for key in ("stop_on_nan", "fast_math"):
        if getattr(args, key):
            body[key] = True
    if args.until is not None:
        program.places["/until"] = ("--until", args.until)
    for series, expression in args.record:
        body.setdefault("record", {})[series] = expression
        program.places[f"/record/{series}"] = (f"--record {series}", expression)
    for of, every in args.snapshot:
        body.setdefault("snapshot", {})[of] = every
        program.places[f"/snapshot/{of}"] = (f"--snapshot {of}", None)
    given = {n for n, _ in args.bind}
    program.bind = [(n, text) for n, text in program.bind if n not in given] + list(args.bind)
    if "steps" not in body:
        raise Failure("run: how many steps? --steps N, or @steps N in the program", 2)


class Records:
    """What is recorded, as lines on standard output while it comes: the step, then the values, with tabs between."""

    def __init__(self, names: List[str], every: int, bar: Bar, quiet: bool):
        self.names, self.every, self.bar, self.quiet = names, every, bar, quiet
        self.told = 0
        self.last: Dict[str, Any] = {}

    def take(self, status: Dict[str, Any]) -> None:
        """From an event, or from the job as a whole: `records_from` says where its values belong."""
        records: Dict[str, List[Any]] = status.get("records") or {}
        if not self.names or not records:
            return
        begin = int(status.get("records_from", 0))
        values = [records.get(n, []) for n in self.names]
        end = begin + min(len(v) for v in values)
        rows = [[v[k - begin] for v in values] for k in range(max(self.told, begin), end)]
        if not rows:
            return
        self.last = dict(zip(self.names, rows[-1]))
        if not self.quiet:
            self.bar.clear()
            if not self.told:
                print("\t".join(["step", *self.names]))
            for k, row in enumerate(rows, max(self.told, begin)):
                print("\t".join([str((k + 1) * self.every), *map(str, row)]))
            sys.stdout.flush()
        self.told = end


def _watched(context: Context, job: Job, program: Program) -> int:
    """To its end, or, where the user does not want to wait, to where he has ended it."""
    args = context.args
    bar = Bar(False if args.quiet else True if args.watch else None)
    every = int(program.body.get("record_every") or job.status.get("record_every") or 1)
    records = Records(list(program.body.get("record") or {}), every, bar, args.json)
    try:
        if not job.ended:
            for status in job.events():
                records.take(status)
                bar.update(lambda width: steps_line(bar, job.status, width, records.last))
        try:
            job.wait()
        except JobFailed:
            pass  # what it failed of is told below
        records.take(job.status)
    except (KeyboardInterrupt, BrokenPipeError, SystemExit):  # Ctrl-C; nobody reads on; a signal
        bar.clear()
        _cancelled(context, job)
        raise
    finally:
        bar.clear()
    if args.json:
        print(json.dumps(job.status))
    for copy in job.status.get("snapshots") or []:
        context.say(f"snapshot of {copy['name']} after step {copy['step']}: {copy['id']}")
    return _ended(context, job, program)


def _cancelled(context: Context, job: Job) -> None:
    if job.ended:
        return
    try:
        job.cancel()
    except ArraydError as e:
        complain(f"the job goes on: {job.id}: {e.detail}")
        return
    if job.state != "cancelled":
        complain(f"{job.id} had just ended after step {job.step} of {job.status['steps']}: {job.state}")
        return
    complain(f"cancelled after step {job.step} of {job.status['steps']}; the arrays are as of that step")


def _ended(context: Context, job: Job, program: Program) -> int:
    s = job.status
    took = f"{duration(float(s['elapsed_s']))}, {count(float(s['steps_per_s']))} steps/s, {duration(float(s['device_s']))} on the device"
    if job.state == "done":
        why = ": until was true" if s.get("stopped_by") == "until" else ""
        context.say(f"{job.step} steps{why}, {took}")
        return 0
    if job.state == "cancelled":
        complain(f"{job.id} was cancelled by another client after step {job.step} of {s['steps']}")
        return 1
    e, at = failure_of(s), failed_at(s)
    where, text = place_of(e, program.places) or ("", None)
    complain(explained(e, f"{where}: {at}" if where else at, text))
    return 1
