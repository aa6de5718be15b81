#!/bin/sh
# Compiles one CUDA source as this command line of nvcc would, with the host's half beside the device's: nvcc takes them one
# after the other, though only its last step needs both. It says its steps itself (--dryrun). Ends with status 99 where they
# are others than those known here, or one of them fails: then nvcc is to do it alone, and what it says is its own.
#
#   sh nvcc_halves.sh nvcc -c -o candidate.o candidate.cu ...
set -u
said=$("$@" --dryrun --keep 2>&1) || exit 99
host='' front='' device='' compile='' assemble='' pack='' last='' mark='#$ '

# Takes one of nvcc's lines: the one step of its kind, or what nvcc sets for its steps, as far as they need it. Many builds run
# side by side, and each program that is started here delays them all: it is done by the shell itself.
take() {
    case $1 in
    'rm '*) return ;;
    TOP=* | CICC_PATH=* | NVVMIR_LIBRARY_DIR=* | LD_LIBRARY_PATH=* | PATH=*)
        value=${1#*=}
        value=${value%"${value##*[! ]}"}
        case $value in
        '') ;;
        *[!A-Za-z0-9/.:_+~,@%\ -]*) exit 99 ;;
        *) export "${1%%=*}=$value" ;;
        esac
        return
        ;;
    esac
    case ${1%%=*} in *[!A-Za-z_]*) ;; *) return ;; esac
    # Without where it would have its messages go.
    step=${1%%[[:space:]]>*}
    case $step in
    *' -E '*'cpp4.ii"'*) [ -z "$host" ] && host=$step ;;
    *' -E '*'cpp1.ii"'*) [ -z "$device" ] && device=$step ;;
    *'cudafe++ '*'--gen_module_id_file '*) [ -z "$front" ] && front=$step ;;
    *'cicc '* | *'cicc" '*) [ -z "$compile" ] && compile=$step ;;
    *'ptxas '*) [ -z "$assemble" ] && assemble=$step ;;
    *'fatbinary '*) [ -z "$pack" ] && pack=$step ;;
    *' -c -x c++ '*) [ -z "$last" ] && last=$step ;;
    *) exit 99 ;;
    esac || exit 99
}

rest=$said
while [ -n "$rest" ]; do
    line=${rest%%"
"*}
    rest=${rest#"$line"}
    rest=${rest#"
"}
    case $line in "$mark"*) take "${line#"$mark"}" ;; esac
done
for step in "$host" "$front" "$device" "$compile" "$assemble" "$pack" "$last"; do
    [ -n "$step" ] || exit 99
done

# What names this source within its program: as a rule the host's half draws it, and the device's waits for that.
module=${front#*--module_id_file_name \"}
[ "$module" != "$front" ] || exit 99
module=${module%%\"*}
[ -n "$module" ] || exit 99
sum=$(printf '%s' "$PWD $*" | cksum) && sum=${sum%% *} || exit 99
printf '_%08x_6_source_%08x' "$sum" "$sum" > "$module" || exit 99
front="${front%%--gen_module_id_file *}${front#*--gen_module_id_file }"

{ eval "$host" && eval "$front"; } > /dev/null 2>&1 &
half=$!
{ eval "$device" && eval "$compile" && eval "$assemble" && eval "$pack"; } > /dev/null 2>&1
other=$?
wait "$half" && [ "$other" -eq 0 ] && eval "$last" > /dev/null 2>&1 || exit 99
