"""Leases in the Python client: x.leased()."""
import asyncio
import time

import numpy as np
import pytest

from test_client_python import arrayd, xp  # noqa: F401

pytestmark = pytest.mark.release_only  # it is the client that is tested here


@pytest.fixture
def other(daemon):
    with arrayd.connect(f"http://127.0.0.1:{daemon.port}") as client:
        yield client


@pytest.fixture
def x(api, xp):  # noqa: F811
    return xp.save("shared", xp.arange(6.0))


def test_alone(xp, other, x):  # noqa: F811
    y = other.array("shared")
    assert float(other.sum(y)) == 15
    with x.leased() as lease:
        assert lease.token and "held" in repr(lease)
        for refused in (lambda: float(other.max(y)), lambda: (y.__setitem__(0, 1.0), other.sync()), lambda: y.leased("read").__enter__(),
                        lambda: x.leased().__enter__(), lambda: other.delete("shared")):
            with pytest.raises(arrayd.Conflict):
                refused()
        x[0] = 10.0
        x += 1
        assert float(xp.sum(x)) == 31 and np.asarray(x).tolist() == [11, 2, 3, 4, 5, 6]
        with pytest.raises(ValueError, match="already"):
            lease.__enter__()
        lease.renew()
    assert lease.token is None and np.asarray(other.array("shared")).tolist() == [11, 2, 3, 4, 5, 6]
    y[0] = 0.0
    assert float(xp.sum(xp.array("shared"))) == 20
    with lease:  # once more
        assert lease.token
    with pytest.raises(ValueError, match="within"):
        lease.renew()


def test_for_reading(xp, other, x):  # noqa: F811
    y = other.array("shared")
    with x.leased("read"):
        assert float(other.sum(y)) == 15
        with pytest.raises(arrayd.Conflict):
            y[0] = 1.0
            other.sync()
        x[0] = 1.0  # it is alone
        with y.leased("read"):
            with pytest.raises(arrayd.Conflict):
                x[0] = 2.0
            with pytest.raises(arrayd.Conflict):
                y[0] = 2.0
        x[0] = 3.0
    assert float(other.sum(y)) == 18


def test_an_array_of_ones_own(xp):  # noqa: F811
    """What is assigned goes into the leased memory, which another client may know by its id; other expressions keep their values."""
    x = xp.zeros(4).compute()  # noqa: F811
    before = x + 0
    y = before * 2
    with x.leased():
        x[:] = 7.0
        assert np.asarray(x).tolist() == [7] * 4 and np.asarray(y).tolist() == [0] * 4
        with pytest.raises(ZeroDivisionError):
            with xp.ones(3).leased("read"):
                1 / 0
    x[0] = 1.0
    assert np.asarray(x).tolist() == [1, 7, 7, 7]


def test_its_time_is_over(xp, other, x):  # noqa: F811
    y = other.array("shared")
    lease = x.leased(ttl_s=0.05)
    with lease:
        deadline = time.monotonic() + 20
        while True:
            try:
                y[0] = 1.0
                other.sync()
                break
            except arrayd.Conflict:
                assert time.monotonic() < deadline
        lease.ttl_s = 60
        was = lease.token
        lease.renew()  # a new one
        assert lease.token != was and list(xp._transport.leases) == [lease.token]
        with pytest.raises(arrayd.Conflict):
            y[0] = 2.0
            other.sync()
        xp.delete("shared")
    assert lease.token is None and not xp._transport.leases
    with pytest.raises(ValueError, match="mode"):
        xp.ones(3).leased("both")
    with pytest.raises(arrayd.ArraydError):
        xp.ones(3).leased(ttl_s=-1).__enter__()


def test_asynchronously(api, daemon, other):
    async def steps():
        async with arrayd.aconnect(f"http://127.0.0.1:{daemon.port}") as axp:
            x = await axp.save("theirs", axp.arange(4.0))  # noqa: F811
            y = other.array("theirs")
            async with x.leased() as lease:
                with pytest.raises(arrayd.Conflict):
                    y[0] = 1.0
                    other.sync()
                await x.assign(0, 5.0)
                await lease.renew()
                assert await axp.sum(x).item() == 11
            assert lease.token is None
            y[0] = 1.0
            other.sync()
            assert await axp.sum(await axp.array("theirs")).item() == 7

    asyncio.run(asyncio.wait_for(steps(), 60))
