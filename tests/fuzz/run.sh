#!/bin/bash
# Long fuzzing with clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/fuzz/run.sh [SECONDS [TARGET…]]      default: 60 seconds each, all targets
#
# New inputs are kept in build-fuzz/corpus; a crasher is left in build-fuzz and belongs, with its
# fix, into tests/fuzz/regressions/<target>.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(infix statement json_tree json_array index npy accept)
clang=${CLANG:-clang}
if ! echo 'int LLVMFuzzerTestOneInput(void);int LLVMFuzzerTestOneInput(void){return 0;}' |
    "$clang" -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null; then
    echo "clang with libFuzzer is not here (Debian: clang libclang-rt-dev)" >&2
    exit 77
fi
build=$root/build-fuzz
mkdir -p "$build"
flags=(-std=gnu17 -D_GNU_SOURCE -O1 -g -ffp-contract=off -fno-math-errno -fno-trapping-math
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I"$root")
sources=("$root"/protocol/*.c "$root"/compute/base/*.c "$root"/compute/{dtype,expr,func,layout,op}.c)
status=0
for t in "${targets[@]}"; do
    "$clang" "${flags[@]}" "$root/tests/fuzz/fuzz_$t.c" "${sources[@]}" -lm -lpthread \
        -o "$build/fuzz_$t"
    mkdir -p "$build/corpus/$t"
    regressions=()
    [ ! -d "$root/tests/fuzz/regressions/$t" ] || regressions=("$root/tests/fuzz/regressions/$t")
    (cd "$build" && "./fuzz_$t" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 \
        "corpus/$t" "$root/tests/fuzz/corpus/$t" "${regressions[@]}") || status=1
done
exit $status
