"""Arrays that live in an arrayd daemon, by the Python Array API standard.

    import arrayd
    xp = arrayd.connect("http://127.0.0.1:7411")
    a = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
    print((a - xp.mean(a)) / xp.std(a))
"""
from ._array import Array
from ._async_client import AsyncArray, AsyncClient, AsyncJob, aconnect
from ._client import Client, connect
from ._errors import (ArraydError, BadIndex, BadType, BadValue, Busy, Conflict, ConnectionLost, Denied, DeviceError, NotFound,
                      OutOfMemory)
from ._export import Exported
from ._jobs import Job, JobFailed
from ._version import __version__

__all__ = ["Array", "ArraydError", "AsyncArray", "AsyncClient", "AsyncJob", "BadIndex", "BadType", "BadValue", "Busy", "Client",
           "Conflict", "ConnectionLost", "Denied", "DeviceError", "Exported", "Job", "JobFailed", "NotFound", "OutOfMemory",
           "__version__", "aconnect", "connect"]
