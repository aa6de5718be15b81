#!/bin/sh
# Compiles one CUDA source as this command line of nvcc would, with the host's half beside the device's: nvcc takes them one
# after the other, though only its last step needs both. It says its steps itself (--dryrun). Ends with status 99 where they
# are others than those known here, or one of them fails: then nvcc is to do it alone, and what it says is its own.
#
#   sh nvcc_halves.sh nvcc -c -o candidate.o candidate.cu ...
set -u
said=$("$@" --dryrun --keep 2>&1) || exit 99
lines=$(printf '%s\n' "$said" | sed -n 's/^#\$ //p' | grep -v '^rm ')
steps=$(printf '%s\n' "$lines" | grep -Ev '^[A-Za-z_]+=' | sed -E 's/[[:space:]]+>[[:space:]]*"?\/.*$//')
[ "$(printf '%s\n' "$steps" | wc -l)" -eq 7 ] || exit 99

# The one step that holds this.
step() {
    found=$(printf '%s\n' "$steps" | grep -E -- "$1") || exit 99
    [ "$(printf '%s\n' "$found" | wc -l)" -eq 1 ] || exit 99
    printf '%s\n' "$found"
}
host=$(step ' -E .*cpp4\.ii"') && front=$(step 'cudafe\+\+ .*--gen_module_id_file ') || exit 99
device=$(step ' -E .*cpp1\.ii"') && compile=$(step 'cicc"? ') && assemble=$(step 'ptxas ') || exit 99
pack=$(step 'fatbinary ') && last=$(step ' -c -x c\+\+ ') || exit 99

# What nvcc sets for its steps, as far as they need it.
for name in TOP CICC_PATH NVVMIR_LIBRARY_DIR LD_LIBRARY_PATH PATH; do
    value=$(printf '%s\n' "$lines" | sed -n "s/^$name=//p" | sed 's/[[:space:]]*$//')
    case $value in
    '') ;;
    *[!A-Za-z0-9/.:_+~,@%\ -]*) exit 99 ;;
    *) export "$name=$value" ;;
    esac
done

# What names this source within its program: as a rule the host's half draws it, and the device's waits for that.
module=$(printf '%s\n' "$front" | sed -nE 's/.*--module_id_file_name "([^"]+)".*/\1/p')
[ -n "$module" ] || exit 99
sum=$(printf '%s' "$PWD $*" | cksum | cut -d ' ' -f 1)
printf '_%08x_6_source_%08x' "$sum" "$sum" > "$module" || exit 99
front=$(printf '%s\n' "$front" | sed 's/--gen_module_id_file //')

{ eval "$host" && eval "$front"; } > /dev/null 2>&1 &
half=$!
{ eval "$device" && eval "$compile" && eval "$assemble" && eval "$pack"; } > /dev/null 2>&1
other=$?
wait "$half" && [ "$other" -eq 0 ] && eval "$last" > /dev/null 2>&1 || exit 99
