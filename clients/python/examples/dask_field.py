#!/usr/bin/env python3
"""A field larger than the memory of any daemon: dask divides it among workers, each of which uses a daemon of its own.

    dask_field.py [SCHEDULER]       tcp://host:8786 of a cluster whose workers have daemons

Without an address it starts two workers on this machine, each with a daemon that may use 64 MiB. `waves` and `smooth` are written for
dask and NumPy alone; nothing in them is arrayd's. Needs dask[array] and distributed.
"""
import os
import sys

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster, WorkerPlugin

import arrayd
import arrayd.dask

LIMIT = "64MiB"  # of a daemon, and of the chunks that its worker keeps there: beyond 60 % of it the others go to the worker's disk
IN_THE_DAEMONS = {f"distributed.worker.memory.{what}": False for what in ("spill", "pause", "terminate")}  # which mean the worker's own


class Beside(WorkerPlugin):
    """A daemon for each worker, which ends with it. On a cluster of machines with a daemon each nothing of this is needed: a worker
    takes the daemon of ARRAYD_URL, or that of its machine."""

    def setup(self, worker):
        self.daemon = arrayd.local(memory_limit=LIMIT)
        os.environ["ARRAYD_URL"] = self.daemon.url

    def teardown(self, worker):
        self.daemon.close()


def waves(n, chunk):
    """n × n float64: made on the workers, chunk by chunk."""
    x = da.linspace(0.0, 20.0, n, chunks=chunk)
    return da.sin(x[:, None]) * da.cos(x[None, :] ** 2 / 20.0)


def smooth(u, steps):
    """Each element with its neighbours, on a torus."""
    def step(block):
        for _ in range(steps):
            block = block / 2 + (np.roll(block, 1, 0) + np.roll(block, -1, 0) + np.roll(block, 1, 1) + np.roll(block, -1, 1)) / 8
        return block

    return u.map_overlap(step, depth=steps, boundary="periodic")


def main(n=3000, chunk=500):
    if len(sys.argv) > 1:
        client, cluster = Client(sys.argv[1]), None
    else:
        dask.config.set(IN_THE_DAEMONS)
        cluster = LocalCluster(n_workers=2, threads_per_worker=2, memory_limit=LIMIT, dashboard_address=None)
        client = Client(cluster)
        client.register_plugin(Beside())
    try:
        field = waves(n, chunk).to_backend("arrayd").persist()  # on the daemons from here on
        print(f"{field.nbytes / 2**20:.0f} MiB of {type(field._meta).__name__} in {field.npartitions} chunks on {len(client.scheduler_info()['workers'])} workers")
        print(f"mean {float(field.mean().compute()):.6f}, std {float(field.std().compute()):.6f}")
        rough, even = field - smooth(field, 4), field.rechunk((n // 10, n))
        print(f"roughness {float(da.sqrt((rough ** 2).mean()).compute()):.3e}")
        profile = np.asarray(even.max(axis=1).compute())  # only this comes here
        print(f"the highest row is {int(profile.argmax())}, with {profile.max():.6f}")
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


if __name__ == "__main__":
    main()
