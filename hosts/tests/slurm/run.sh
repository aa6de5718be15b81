#!/usr/bin/env bash
# A real Slurm for as long as standard input is open: munged, slurmctld and two slurmd, two nodes of this host with two
# pretended GPUs each. Says SLURM_CONF=FILE when both are idle; where it cannot be, nothing, and why not to standard error.
# Nothing outside its own folder is written. Debian: apt install slurm-wlm munge
#
#     coproc hosts/tests/slurm/run.sh && read -r conf <&"${COPROC[0]}" && export "$conf" && sinfo
set -euo pipefail

for program in munged slurmctld slurmd sbatch; do
    command -v "$program" > /dev/null || PATH=$PATH:/usr/sbin:/sbin
    command -v "$program" > /dev/null || { echo "skipped: no $program is installed" >&2; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: slurmd needs root" >&2; exit 0; }

here=$(mktemp -d "${TMPDIR:-/tmp}/warpsmith-slurm-XXXXXX")
host=$(hostname -s)
started=()
stop() {
    trap '' INT TERM HUP
    scancel --full --signal=KILL --user=root 2> /dev/null || true
    for _ in $(seq 400); do [ -n "$(squeue --noheader --states=RUNNING,COMPLETING 2> /dev/null)" ] || break; sleep 0.1; done
    kill "${started[@]}" 2> /dev/null || true
    for _ in $(seq 30); do kill -0 "${started[@]}" 2> /dev/null || break; sleep 0.1; done
    kill -KILL "${started[@]}" 2> /dev/null || true
    wait 2> /dev/null || true
    rm -rf "$here"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP

start() { "$@" >> "$here/log" 2>&1 < /dev/null & started+=($!); }
# What holds, or the log of why not.
until_true() {
    for _ in $(seq 300); do if "$@" 2> /dev/null; then return; fi; sleep 0.1; done
    echo "not within 30 s: $*" >&2; cat "$here"/log >&2; exit 1
}

chmod 755 "$here"
mkdir "$here"/{munge,state,spool-one,spool-two}
dd if=/dev/urandom of="$here/munge/key" bs=128 count=1 status=none
chmod 700 "$here/munge"; chmod 400 "$here/munge/key"
for gpu in 0 1 2 3; do mknod "$here/gpu$gpu" c 1 3; done
port=$((20000 + RANDOM % 10000))

cat > "$here/slurm.conf" << END
ClusterName=warpsmith
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge/socket,cred_expire=10
SlurmctldPort=$port
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd-%n.pid
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
GresTypes=gpu
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1 Gres=gpu:2 State=UNKNOWN
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
END
cat > "$here/gres.conf" << END
NodeName=one Name=gpu File=$here/gpu[0-1]
NodeName=two Name=gpu File=$here/gpu[2-3]
END
export SLURM_CONF=$here/slurm.conf

start munged --foreground --force --key-file="$here/munge/key" --socket="$here/munge/socket" --pid-file="$here/munge/pid" \
    --log-file="$here/munge/log" --seed-file="$here/munge/seed"
until_true test -S "$here/munge/socket"
start slurmctld -D
start slurmd -D -N one
start slurmd -D -N two
both_idle() { [ "$(sinfo --noheader --states=idle --format=%D)" = 2 ]; }
until_true both_idle

echo "SLURM_CONF=$SLURM_CONF"
cat > /dev/null
