"""A client for arrays in an arrayd daemon, with the interface of the Python Array API standard.

    import arrayd
    xp = arrayd.connect("http://127.0.0.1:7411")    # or arrayd.local(), a daemon of this process' own
    a = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    print((a - xp.mean(a)) / xp.std(a))

Each name is loaded when it is first used, so that most commands of arrayd-cli, which need no arrays, do not load NumPy.
"""
import importlib
from typing import TYPE_CHECKING, Any, List

from ._errors import (ArraydError, BadIndex, BadReply, BadType, BadValue, Busy, Conflict, ConnectionLost, Denied, DeviceError, NotFound,
                      OutOfMemory)
from ._version import __version__

if TYPE_CHECKING:
    from ._array import Array
    from ._async_client import AsyncArray, AsyncClient, AsyncJob, aconnect
    from ._client import Client, connect
    from ._config import config
    from ._export import Exported
    from ._jobs import Job, JobFailed
    from ._lease import Lease
    from ._local import local
    from ._looks import Picture, Summary
    from ._transfers import TransferForbidden, TransferWarning

__all__ = ["Array", "ArraydError", "AsyncArray", "AsyncClient", "AsyncJob", "BadIndex", "BadReply", "BadType", "BadValue", "Busy", "Client",
           "Conflict", "ConnectionLost", "Denied", "DeviceError", "Exported", "Job", "JobFailed", "Lease", "NotFound", "OutOfMemory",
           "Picture", "Summary", "TransferForbidden", "TransferWarning", "__version__", "aconnect", "config", "connect", "local"]

if not TYPE_CHECKING:  # which knows them from above
    _HOME = {"Array": "_array", "AsyncArray": "_async_client", "AsyncClient": "_async_client", "AsyncJob": "_async_client",
             "Client": "_client", "Exported": "_export", "Job": "_jobs", "JobFailed": "_jobs", "Lease": "_lease", "Picture": "_looks", "Summary": "_looks",
             "TransferForbidden": "_transfers", "TransferWarning": "_transfers", "aconnect": "_async_client", "config": "_config",
             "connect": "_client", "local": "_local"}

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module("." + _HOME[name], __name__), name)
        return value

    def __dir__() -> List[str]:
        return sorted({*globals(), *__all__})
