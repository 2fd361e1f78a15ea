#!/bin/bash
#SBATCH --job-name=trainer
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@180
# A run on Slurm: the trainer and Ray's head on the first node, workers on all. Edit the last lines; then
#     sbatch slurm.sh
# Three minutes before its time is over the trainer saves and ends; the same line goes on from there.
set -eu
. ~/trainer/bin/activate # a virtual environment in a home that all nodes share

export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_TOKEN_PATH=$HOME/.ray/token-$SLURM_JOB_ID # of this job alone; other users share these machines
(umask 077 && mkdir -p ~/.ray && python -c "import secrets; print(secrets.token_hex(32))" >"$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

# Of several addresses of a node the first is taken; two jobs that meet on a node need ports of their own.
host=$(hostname -I | cut -d " " -f 1) port=$((20000 + SLURM_JOB_ID % 10000))
start_ray() { # NODES, options of srun and ray start; it ends with the job
    srun --nodes="$1" --ntasks="$1" --overlap "${@:2}" --block --num-cpus="$SLURM_CPUS_PER_TASK" &
}
start_ray 1 --nodelist="$SLURMD_NODENAME" \
    ray start --head --node-ip-address="$host" --port="$port" --include-dashboard=false
until (: <"/dev/tcp/$host/$port") 2>/dev/null; do sleep 1 && kill -0 $!; done
if [ "$SLURM_NNODES" -gt 1 ]; then
    start_ray $((SLURM_NNODES - 1)) --exclude="$SLURMD_NODENAME" ray start --address="$host:$port"
    sleep 20 # until they have joined: the doctor looks at those that are there, the trainer waits for what it needs
fi

mlagents-style doctor --ray "$host:$port" --env="$HOME/builds/Walker.x86_64"
resume=()
if [ -e results/walker ]; then resume=(--resume); fi
# In the background and waited for, or bash would not pass the signal on before the trainer ends.
mlagents-style learn config.yaml --run-id=walker "${resume[@]}" --env="$HOME/builds/Walker.x86_64" \
    --num-workers=$((SLURM_NNODES * SLURM_CPUS_PER_TASK / 2)) --ray-address="$host:$port" &
trainer=$!
trap 'kill -TERM $trainer' TERM
wait $trainer || wait $trainer # the first wait ends at the signal, the second with the trainer
