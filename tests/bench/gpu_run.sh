#!/usr/bin/env bash
# Everything that is measured and checked on a machine with an NVIDIA GPU, from a bare checkout.
#
#     gpu_run.sh STEP…       build unit backend arrays sanitize suite devices bench bench-quick sample rows program
#                            values first fair move transfer files http export consumers generated generated-checked soak survive keep
#
# A step that fails or runs out of time does not stop the next; each has a log in $OUT and a line in
# the summary, which comes last. Exit status: how many steps failed.
#
#   OUT       logs and results                           default /tmp/arrayd-gpu
#   WORK      build folders, unpacked packages           default /tmp/arrayd-gpu-work
#   DEBS      a folder of .deb files that takes the place of what is not installed: libmicrohttpd, gnutls,
#             cjson, sleef, nettle, libpng, cmocka (-dev and libraries), uthash-dev, libxxhash-dev; for arrayd-file
#             hdf5, netcdf, libzip, libtiff, libseccomp and what their libraries need. They are unpacked below WORK,
#             never into the system.
#   LIMIT_…   seconds a step may take (LIMIT_BENCH_QUICK and so on)
#   PROPERTY  random expressions in `backend`; each is a kernel to compile. Default 3000
#   EXACT     random expressions in `backend` whose bits must be the CPU's. Default 2000
#   EVERY     `sanitize` takes one golden record and one on whole arrays in so many. Default 41
#   SHARES    processes that share the HTTP tests in `suite`, which need pytest, PyYAML and jsonschema.
#             Default 6
#   TESTS     files of HTTP tests that `suite` takes, by pattern. Default all, which is more than ten minutes' work: each
#             new kernel is compiled
#   SAMPLE    random expressions in `sanitize`. Default 60
#   SEED      of `generated`, `generated-checked` (tests/generated/run.py), `soak` and `survive`: other programs,
#             expressions, arrays and orders. Default 1
#   GENERATED  of each, at most, of elements of a field POINTS; AIMED: cases made for the cells of the tables in turn.
#             Default 5000, 4000000, 5000; under a checker 300, 20000, 300
#   TOOLS     checkers of `generated-checked`. Default memcheck
#   DAEMONS   side by side in `generated`. Default as many as there are cores
#   ROUNDS    of each kind in `survive`, which ends when its time is up; ARRAYS of together BYTES, users that work on
#             arrays of ELEMENTS. Default 40, 1000, 100GiB, 16777216. JOBS=1: programs must go on, too
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-/tmp/arrayd-gpu}
work=${WORK:-/tmp/arrayd-gpu-work}
release=$work/release checked=$work/checked hooked=$work/hooked sysroot=$work/sysroot
jobs=$(nproc)
python=${PYTHON:-python3}
mkdir -p "$out" "$work"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 XLA_PYTHON_CLIENT_PREALLOCATE=false

# --- steps: each is a function run in a shell of its own, under a time limit ---

# Headers and libraries from $DEBS; .pc files are rewritten to where they now lie, and what they need
# for static linking alone is forgotten, so that libmicrohttpd does not ask for all of gnutls.
unpack() {
    local deb
    rm -rf "$sysroot"
    mkdir -p "$sysroot"
    for deb in "$DEBS"/*.deb; do
        dpkg -x "$deb" "$sysroot" || return 1
    done
    find "$sysroot" -name '*.pc' -exec sed -i -e "s|\([=LI]\)/usr|\1$sysroot/usr|g" \
        -e '/^Requires\.private/d' {} +
}

# Where the unpacked packages are. RPATH (not RUNPATH) holds for libraries of libraries too, and
# other programs are left with the system's own.
use_sysroot() {
    local lib
    lib=$sysroot/usr/lib/$(gcc -print-multiarch)
    [ -d "$lib" ] || return 0
    export PKG_CONFIG_PATH=$lib/pkgconfig:${PKG_CONFIG_PATH:-}
    export CFLAGS="${CFLAGS:-} -isystem $sysroot/usr/include -isystem $sysroot/usr/include/$(gcc -print-multiarch)"
    export LDFLAGS="${LDFLAGS:-} -L$lib -Wl,--disable-new-dtags,-rpath,$lib"
}

setup() { # FOLDER OPTION…
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "$@"
    else
        meson setup "$folder" "$root" -Dwerror=false "$@"
    fi
}

step_build() {
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv || true
    gcc --version | head -1
    meson --version
    if [ -n "${DEBS:-}" ]; then
        unpack || return 1
    fi
    use_sysroot
    # The checked build keeps its assertions, and with them the validating front of the backends.
    setup "$release" --buildtype=release || return 1
    setup "$checked" --buildtype=debugoptimized -Db_ndebug=false || return 1
    ninja -j"$jobs" -C "$release" server/arrayd server/arrayd-file tests/bench/h5_bare tests/bench/http_bare tests/bench/bench_new tests/bench/bench_transfer tests/backend/property || return 1
    ninja -j"$jobs" -C "$checked" || return 1
}

# One test program on the real backend; being skipped (77) is a failure here.
on_cuda() {
    local name=$1 begin=$SECONDS status
    shift
    "$@"
    status=$?
    echo "$name: status $status, $((SECONDS - begin)) s"
    return "$status"
}

step_backend() {
    local failed=0
    on_cuda golden "$checked/tests/backend/golden_suite" cuda || failed=1
    on_cuda property "$checked/tests/backend/property" cuda "${PROPERTY:-3000}" || failed=1
    on_cuda exact "$checked/tests/backend/exact" cuda "${EXACT:-2000}" || failed=1
    for suite in "golden_suite cuda" "property cuda ${PROPERTY:-3000}" "exact cuda ${EXACT:-2000}" "array_suite cuda 23"; do
        # shellcheck disable=SC2086
        ARRAYD_INTERPRET=only on_cuda "$suite, interpreted" "$checked/tests/backend/"$suite || failed=1
    done
    on_cuda scans "$checked/tests/backend/scans" cuda long || failed=1
    on_cuda "property, as released" "$release/tests/backend/property" cuda 500 100000 || failed=1
    return "$failed"
}

# The golden tables of functions over whole arrays: some 23,000 kernels.
step_arrays() {
    on_cuda arrays "$checked/tests/backend/array_suite" cuda
}

# Memory that another process maps: what it sees and writes, what is left when it is killed, and how
# long it takes for 2 GiB.
step_export() {
    on_cuda export "$checked/tests/backend/export_suite" cuda 2147483648
}

step_sanitize() {
    local tool failed=0 sanitizer
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    for tool in memcheck racecheck initcheck; do
        on_cuda "$tool golden" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
            "$checked/tests/backend/golden_suite" cuda "${EVERY:-41}" || failed=1
        on_cuda "$tool arrays" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
            "$checked/tests/backend/array_suite" cuda "${EVERY:-41}" || failed=1
        on_cuda "$tool property" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
            "$checked/tests/backend/property" cuda "${SAMPLE:-60}" || failed=1
        on_cuda "$tool programs" sanitized_programs "$sanitizer" "$tool" || failed=1
    done
    return "$failed"
}

# A daemon under a checker, as a program: the checker does not pass on the signal that ends the daemon.
under_checker() { # SANITIZER TOOL WRAPPER [OPTION…]
    cat >"$3" <<END
#!/bin/sh
"$1" --tool "$2" --print-limit 20 ${*:4} "$checked/server/arrayd" --no-keeper "\$@" &
child=\$!
trap 'pkill -TERM -P \$child' TERM
wait \$child
wait \$child
exit 0
END
    chmod +x "$3"
}

# Generated programs and expressions, by as many daemons as there are cores: compiling takes the time.
generated() { # BINARY NUMBER POINTS DAEMONS SECONDS NAME
    "$python" "$root/tests/generated/run.py" "$1" --backend cuda --daemon=--kernel-cache --daemon="$work/kernels" \
        --seed "${SEED:-1}" --programs "${GENERATED:-$2}" --expressions "${GENERATED:-$2}" --aimed "${AIMED:-$2}" --points "${POINTS:-$3}" \
        --jobs "$4" --numpy 0.25 --seconds "$5" --out "$out/$6.json"
}

step_generated() {
    generated "$checked/server/arrayd" 5000 4000000 "${DAEMONS:-$jobs}" $(($(limit_of generated) - 75)) "generated-${SEED:-1}"
}

step_generated_checked() {
    local tool failed=0 sanitizer tools=(${TOOLS:-memcheck})
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    for tool in "${tools[@]}"; do
        under_checker "$sanitizer" "$tool" "$work/under-$tool" --show-backtrace no
        generated "$work/under-$tool" 300 20000 "${DAEMONS:-$jobs}" \
            $(($(limit_of generated-checked) / ${#tools[@]} - 60)) "$tool-${SEED:-1}" || failed=1
    done
    return "$failed"
}

# Four users at once; what is not right, or not given back, fails. It warms up for 30 seconds.
step_soak() {
    ARRAYD_BIN=$checked/server/arrayd "$python" "$root/tests/http/soak.py" --real-gpu --seed "${SEED:-1}" --warm 30 \
        --slack 256 --minutes "$(awk "BEGIN { print ($(limit_of soak) - 75) / 60 }")" | tee "$out/soak-${SEED:-1}.log" | tail -n 1 |
        sed 's/^/| /'
    return "${PIPESTATUS[0]}"
}

# Arrays that outlive the daemon, which is built so that a signal makes a kernel fault.
step_survive() {
    use_sysroot
    setup "$hooked" --buildtype=release -Dfault_hook=true || return 1
    ninja -j"$jobs" -C "$hooked" server/arrayd >/dev/null || return 1
    "$python" "$root/tests/bench/bench_survive.py" "$hooked/server/arrayd" --seed "${SEED:-1}" --rounds "${ROUNDS:-40}" \
        --arrays "${ARRAYS:-1000}" --bytes "${BYTES:-100GiB}" --elements "${ELEMENTS:-16777216}" --kernel-cache "$work/kernels-hooked" \
        --seconds $(($(limit_of survive) - SECONDS - 60)) --log "$out/survive-${SEED:-1}.log" ${JOBS:+--jobs}
}

# What it costs that arrays outlive the daemon.
step_keep() {
    "$release/tests/bench/bench_new" cuda | sed 's/^/| /' || return 1
    "$python" "$root/tests/bench/bench_keep.py" "$release/server/arrayd" --backend cuda || return 1
    "$python" "$root/tests/bench/bench_restart.py" "$release/server/arrayd" --backend cuda --rounds 8
}

# Steps of all forms, on small arrays, through a daemon under a checker.
sanitized_programs() { # SANITIZER TOOL
    local wrapper=$work/sanitized-$2 log=$work/sanitized-$2.log
    under_checker "$1" "$2" "$wrapper" --log-file "$log"
    "$python" "$root/tests/bench/bench_gpu_program.py" "$wrapper" --no-peers --shrink 16 --rounds 1 \
        --cases "heat 512^3" "heat 509^3" "heat 8192^2" "wave 8192^2" "wave 512^3" "Gray-Scott 8192^2" \
        "heat 512^3 wrap" "heat 8192^2 wrap" || return 1
    grep SUMMARY "$log"
    grep -q 'SUMMARY: 0' "$log" && return
    grep -v Host "$log" | head -n 60
    return 1
}

# The HTTP tests on this machine's GPU, which a daemon takes by itself: several processes that take turns,
# and then one for those that look at times.
http_tests() { # SHARES ARGUMENT…
    local shares=$1 k failed=0 pids=() run=$work/http-run
    shift
    export ARRAYD_REAL_GPU=1 ARRAYD_BIN=$checked/server/arrayd ARRAYD_PROGRAMS=${ARRAYD_PROGRAMS:-12}
    rm -rf "$run"
    mkdir -p "$run"
    for ((k = 1; k <= shares; k++)); do
        # Before the step's own limit, so that it is told what failed, and how
        ARRAYD_RUN=$run timeout --foreground -k 10 -s INT $(($(limit_of suite) - 60)) "$python" -m pytest -v -p no:cacheprovider -rf --tb=short -m 'not alone and not last' \
            "$@" >"$out/http-$k.log" 2>&1 &
        pids+=($!)
    done
    for k in "${pids[@]}"; do wait "$k" || failed=1; done
    "$python" -m pytest -q -p no:cacheprovider -rf --tb=short -m alone "$@" >"$out/http-alone.log" 2>&1
    case $? in
    0 | 5) ;; # 5: there is none
    *) failed=1 ;;
    esac
    grep -hvE '::.* (PASSED|SKIPPED) ' "$out"/http-*.log
    grep -hE '^(FAILED|ERROR)|(passed|failed).* in ' "$out"/http-*.log | sed 's/^/| /'
    return "$failed"
}

run_step() {
    local bench=$root/tests/bench arrayd=$release/server/arrayd
    case $1 in
    build) step_build ;;
    unit) meson test -C "$checked" --no-rebuild --print-errorlogs --suite unit ;;
    backend) step_backend ;;
    arrays) step_arrays ;;
    export) step_export ;;
    consumers) "$python" "$bench/bench_export.py" "$arrayd" ;;
    sanitize) step_sanitize ;;
    suite) cd "$root" && http_tests "${SHARES:-6}" ${TESTS:-tests/http} ;;
    devices) http_tests 1 "$root/tests/http/test_gpu.py" -k "room or meet" ;;
    bench) "$python" "$bench/bench_gpu.py" "$arrayd" ;;
    bench-quick) "$python" "$bench/bench_gpu.py" "$arrayd" --quick ;;
    sample) "$python" "$bench/bench_sample.py" "$arrayd" ;;
    rows) "$python" "$bench/bench_rows.py" "$arrayd" ;;
    program) "$python" "$bench/bench_gpu_program.py" "$arrayd" ;;
    values) "$python" "$bench/bench_values.py" "$arrayd" ;;
    first) "$arrayd" precompile "$work/ready" sm_90 && "$python" "$bench/bench_first.py" "$arrayd" --settle 2 --daemon ready-kernels="$work/ready" ;;
    fair) "$python" "$bench/bench_fair.py" "$arrayd" ;;
    move) "$python" "$bench/bench_move.py" "$arrayd" ;;
    transfer) "$release/tests/bench/bench_transfer" ;;
    files) "$python" "$bench/bench_files.py" "$arrayd" --backend cuda --folder "$work/files" ;;
    http) "$python" "$bench/bench_gpu_http.py" "$arrayd" "$release/tests/bench/http_bare" ;;
    generated) step_generated ;;
    generated-checked) step_generated_checked ;;
    soak) step_soak ;;
    survive) step_survive ;;
    keep) step_keep ;;
    esac
}

limit_of() {
    case $1 in
    build) echo "${LIMIT_BUILD:-180}" ;;
    unit) echo "${LIMIT_UNIT:-120}" ;;
    backend) echo "${LIMIT_BACKEND:-300}" ;;
    arrays) echo "${LIMIT_ARRAYS:-400}" ;;
    export) echo "${LIMIT_EXPORT:-90}" ;;
    consumers) echo "${LIMIT_CONSUMERS:-160}" ;;
    sanitize) echo "${LIMIT_SANITIZE:-300}" ;;
    suite) echo "${LIMIT_SUITE:-500}" ;;
    devices) echo "${LIMIT_DEVICES:-60}" ;;
    bench) echo "${LIMIT_BENCH:-240}" ;;
    bench-quick) echo "${LIMIT_BENCH_QUICK:-60}" ;;
    sample) echo "${LIMIT_SAMPLE:-90}" ;;
    rows) echo "${LIMIT_ROWS:-400}" ;;
    program) echo "${LIMIT_PROGRAM:-180}" ;;
    values) echo "${LIMIT_VALUES:-60}" ;;
    first) echo "${LIMIT_FIRST:-180}" ;;
    fair) echo "${LIMIT_FAIR:-150}" ;;
    move) echo "${LIMIT_MOVE:-60}" ;;
    transfer) echo "${LIMIT_TRANSFER:-120}" ;;
    files) echo "${LIMIT_FILES:-300}" ;;
    http) echo "${LIMIT_HTTP:-150}" ;;
    generated) echo "${LIMIT_GENERATED:-300}" ;;
    generated-checked) echo "${LIMIT_GENERATED_CHECKED:-300}" ;;
    soak) echo "${LIMIT_SOAK:-480}" ;;
    survive) echo "${LIMIT_SURVIVE:-480}" ;;
    keep) echo "${LIMIT_KEEP:-90}" ;;
    esac
}

# --- the steps asked for ---

if [ "${1:-}" = --run ]; then
    run_step "$2"
    exit
fi
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
for step; do
    [ -n "$(limit_of "$step")" ] || { echo "no step '$step'" >&2; exit 2; }
done

failures=0
: >"$out/summary.txt"
for step; do
    begin=$SECONDS
    timeout -k 10 "$(limit_of "$step")" bash "$0" --run "$step" >"$out/$step.log" 2>&1
    status=$?
    case $status in
    0) result=passed ;;
    124 | 137) result="out of time" ;;
    *) result="failed ($status)" ;;
    esac
    [ "$status" = 0 ] || failures=$((failures + 1))
    # What a step tabulates, and of one that failed the end of its log.
    grep '^|' "$out/$step.log" | cut -c1-600
    if [ "$status" != 0 ]; then
        echo "--- $step: the end of $out/$step.log"
        grep -v '^[|{]' "$out/$step.log" | tail -n 25 | cut -c1-400
    elif ! grep -q '^|' "$out/$step.log"; then
        tail -n 3 "$out/$step.log" | cut -c1-400
    fi
    printf '%-12s %-14s %4d s\n' "$step" "$result" "$((SECONDS - begin))" >>"$out/summary.txt"
done
cat "$out/summary.txt"
exit "$failures"
