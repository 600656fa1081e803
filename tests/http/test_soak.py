"""The mixed load of soak.py, for some seconds, where sanitizers look at it or time is given; the long run is soak.py itself."""
import os

import pytest

import soak
from conftest import fake_gpu


def test_what_counts_as_back_to_where_it_was():
    before = {"rss": 100, "descriptors": 10, "arrayd_arrays": 0}
    assert soak.differences(before, {**before, "rss": 150}, 50) == []
    assert len(soak.differences(before, {**before, "rss": 151}, 50)) == 1
    assert len(soak.differences(before, {"rss": 1, "descriptors": 11, "arrayd_arrays": 1}, 50)) == 2


@pytest.mark.skipif(not os.environ.get("ARRAYD_SUBSET") and not os.environ.get("ARRAYD_LONG"), reason="for sanitizers, or the long run")
@pytest.mark.parametrize("gpu", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["cpu", "cuda"])
def test_soak(gpu):
    if gpu and fake_gpu() is None:
        pytest.skip("no fake driver in this build, or no g++")
    report = soak.soak(6, 4, 64 * soak.MIB, gpu)
    assert len(report["pieces"]) == 8 and report["peak"]["arrayd_arrays"] > 0
