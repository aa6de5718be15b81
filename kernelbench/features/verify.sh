#!/bin/bash
# Builds the kernels of a column on a machine with its GPU, compares each with its reference, times it, reads the counters, and
# prints a table. Needs nvcc, ncu, cuobjdump and Python 3.11 on the path; takes a few minutes at most.
#
#   kernelbench/features/verify.sh [FOLDER FOR WHAT IS BUILT] [CELL ...]     such as: verify.sh /tmp/features 01_wgmma 05_tma
set -u
here=$(cd "$(dirname "$0")" && pwd)
drive=$here/../tests/features/drive.py
built=${1:-$(mktemp -d)}
[ $# -gt 0 ] && shift
mkdir -p "$built" && built=$(cd "$built" && pwd)
cells=()
if [ $# -gt 0 ]; then for cell in "$@"; do cells+=("$here/hopper/$cell"); done; else cells=("$here"/hopper/*/); fi
cells=("${cells[@]%/}")
export PYTHONUNBUFFERED=1
began=$SECONDS

# Several compilers at a time.
flags="-std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler=-fPIC"
{
    echo "$here/../tests/features/bench.cu $built/bench.so"
    for cell in "${cells[@]}"; do
        for kind in reference naive optimized; do echo "$cell/$kind.cu $built/$(basename "$cell")_$kind.so"; done
    done
} | xargs -P "$(nproc)" -L 1 sh -c "nvcc $flags -o \$1 \$0 > \$1.log 2>&1 || echo \"does not build: \$0\""
grep -l 'C75[0-9][0-9]' "$built"/*.log 2> /dev/null | sed 's/$/: wgmma is serialized/'
grep -h 'error' "$built"/*.log
echo "built after $((SECONDS - began)) s"

# Each cell in a process of its own: one that hangs or fails takes no other with it.
for cell in "${cells[@]}"; do
    name=$(basename "$cell")
    timeout -k 2 25 python3 "$drive" check "$built" "$cell" > "$built/$name.json" 2> "$built/$name.err" ||
        echo "$name: ended with $?: $(tail -n 1 "$built/$name.err")"
done
echo "compared and timed after $((SECONDS - began)) s"

rm -f "$built/counters.csv"
mapfile -t right < <(python3 "$drive" right "$built" "${cells[@]}")
if [ -n "${right[0]:-}" ]; then
    timeout -k 2 150 ncu --profile-from-start off --clock-control none --csv --page raw --print-units base \
        --metrics "$(python3 "$drive" metrics "${right[@]}")" \
        python3 "$drive" calls "$built" "${right[@]}" > "$built/counters.csv" 2> "$built/counters.err" ||
        echo "ncu ended with $?: $(grep -hE 'ERROR|rror' "$built/counters.err" "$built/counters.csv" | head -n 5)"
fi
echo "counters after $((SECONDS - began)) s"
echo
python3 "$drive" table "$built" "${cells[@]}"
