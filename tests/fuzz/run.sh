#!/bin/bash
# Long fuzzing with clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/fuzz/run.sh [SECONDS | EXECUTIONSx] [TARGET…]
#
# So long each, or so many inputs ("10000000x"); default: 60 seconds, all targets. New inputs are
# kept in build-fuzz/inputs; a crasher is left in build-fuzz and belongs, with its fix, into
# tests/fuzz/regressions/<target>.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$root/build-fuzz}
amount=${1:-60}
shift || true
case $amount in
*x) limit=-runs=${amount%x} ;;
*) limit=-max_total_time=$amount ;;
esac
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(cd "$root/tests/fuzz" && printf '%s\n' fuzz_*.c | sed 's/^fuzz_//; s/\.c$//'))
clang=${CLANG:-clang}
if ! echo 'int LLVMFuzzerTestOneInput(void);int LLVMFuzzerTestOneInput(void){return 0;}' |
    "$clang" -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then
    echo "clang with libFuzzer is not here (Debian: clang libclang-rt-dev)" >&2
    exit 77
fi
[ -e "$build/build.ninja" ] ||
    CC="$clang" meson setup "$build" "$root" -Dbuildtype=debugoptimized -Doptimization=1 \
        -Dlibfuzzer=true -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=false \
        -Dc_args="-fsanitize=fuzzer-no-link -fno-sanitize-recover=all -w" >/dev/null
ninja -C "$build" "${targets[@]/#/tests/fuzz/fuzz_}" >"$build/build.log" ||
    { tail -n 30 "$build/build.log" >&2; exit 1; }
status=0
for t in "${targets[@]}"; do
    mkdir -p "$build/inputs/$t"
    given=("$root/tests/fuzz/corpus/$t")
    [ ! -d "$root/tests/fuzz/regressions/$t" ] || given+=("$root/tests/fuzz/regressions/$t")
    echo "== $t"
    longest=1024
    [ "$t" != reader ] || longest=16384 # whole files
    "$build/tests/fuzz/fuzz_$t" "$limit" -max_len="$longest" -entropic=0 -print_final_stats=1 \
        -artifact_prefix="$build/$t-" "$build/inputs/$t" "${given[@]}" || status=1
done
exit $status
