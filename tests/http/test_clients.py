"""Which call of each client's makes which request of the contract's: the table has every request, and every call is there.

A request without a call (`-`) is made by `request` (Python, JavaScript) and `arrayd_request` (C).
"""
import json
import re

import pytest

from client import REPO
from test_client_python import arrayd

pytestmark = pytest.mark.release_only  # no daemon takes part

CALLS = """
operation       python              c                      javascript
getHealth       -                   -                      -
getReady        -                   arrayd_ping            -
getMetrics      -                   -                      -
getContract     -                   -                      -
getPage         -                   -                      -
getPageFile     -                   -                      -
getInfo         info                -                      info
takeSnapshot    -                   -                      -
getFaults       -                   -                      faults
forgetFaults    -                   -                      forgetFaults
forgetFault     -                   -                      forgetFault
logIn           -                   -                      logIn
getLogin        -                   arrayd_login           login
logOut          -                   -                      logOut
createLink      -                   arrayd_link_create     createLink
listLinks       -                   arrayd_links           links
deleteLink      -                   arrayd_link_delete     deleteLink
endLogins       -                   -                      endLogins
endOthersLogins -                   -                      endLogins
createSession   session             arrayd_session_create  createSession
listSessions    sessions            -                      sessions
getSession      -                   -                      -
deleteSession   close               arrayd_session_delete  delete
syncSession     sync                arrayd_session_sync    sync
createArray     grid                arrayd_create          create
listArrays      arrays              arrayd_list            list
putArray        save                arrayd_replace         array
getArray        metadata            arrayd_find            get
patchArray      Array.patch         arrayd_patch           patch
deleteArray     delete              arrayd_delete          delete
resizeArray     Array.resize        arrayd_resize          resize
createView      -                   arrayd_view_json       view
copyArray       Array.copy          arrayd_copy            copy
swapArrays      swap                arrayd_swap            swap
fillGhost       Array.fill_ghost    arrayd_fill_ghost      fillGhost
shareArray      share               arrayd_share           share
listShares      shares              arrayd_shares          shares
unshareArray    unshare             arrayd_unshare         unshare
leaseArray      Array.leased        arrayd_lease           lease
releaseLease    Array.leased        arrayd_lease_end       end
exportArray     Array.exported      arrayd_export_begin    -
getData         Array.read          arrayd_read_ghost      data
getSummary      Array.summary       arrayd_summary         summary
putData         Array.write         arrayd_write_ghost     put
computeLayout   layout              arrayd_layout          layout
evaluate        evaluate            arrayd_evaluate        evaluate
explain         explain             -                      explain
startProgram    program             arrayd_program_start   start
listJobs        jobs                -                      jobs
getJob          job                 arrayd_job_poll        job
deleteJob       Job.cancel          arrayd_job_cancel      cancel
getJobEvents    Job.events          -                      events
getArrayEvents  Array.changes       arrayd_changes         frames
getEvents       changes             arrayd_list_changes    changes
resumeJob       Job.resume          arrayd_job_resume      resume
listAllSessions admin               -                      sessions
endSession      admin_end           arrayd_end_session     endSession
listAllJobs     admin               -                      jobs
endJob          admin_end           arrayd_end_job         endJob
listAllArrays   admin               -                      arrays
endArray        admin_end           arrayd_end_array       endArray
listPrincipals  admin               -                      principals
endPrincipal    admin_end           arrayd_end_principal   endPrincipal
setPrincipal    admin_set           arrayd_set_principal   setPrincipal
getAudit        admin               -                      audit
createFunction  -                   -                      defineFunction
putFunction     define              arrayd_function_define defineFunction
listFunctions   functions           -                      functions
getFunction     -                   -                      -
deleteFunction  delete_function     arrayd_function_delete deleteFunction
listFolders     files               arrayd_folders         -
lookAtFile      files               arrayd_file_look       -
importFile      files               arrayd_file_import     -
exportFile      files               arrayd_file_export     -
bundleArrays    save                arrayd_file_bundle     -
"""
ROWS = [line.split() for line in CALLS.strip().splitlines()[1:]]


def test_every_request_is_in_the_table():
    contract = json.loads((REPO / "protocol/openapi.yaml").read_text())
    wanted = {o["operationId"] for path in contract["paths"].values() for o in path.values() if "operationId" in o}
    assert {row[0] for row in ROWS} == wanted and len(ROWS) == len(wanted)


def in_python(call):
    """In both clients."""
    kind, _, name = call.rpartition(".")
    return all(hasattr(getattr(arrayd, prefix + (kind or "Client")), name) for prefix in ("", "Async"))


def test_every_call_is_there():
    header = "".join(p.read_text() for p in (REPO / "clients/c/include").glob("*.h"))
    module, types = ("".join(p.read_text() for p in (REPO / "clients/js").glob(f"*.{suffix}")) for suffix in ("js", "d.ts"))
    for operation, python, c, javascript in ROWS:
        assert python == "-" or in_python(python), (operation, python)
        assert c == "-" or re.search(rf"^ARRAYD_API int {c}\(", header, re.M), (operation, c)
        for text in (module, types):
            assert javascript == "-" or re.search(rf"^    (?:async )?\*?{javascript}(?:<.*>)?\(", text, re.M), (operation, javascript)
