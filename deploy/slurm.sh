#!/usr/bin/env bash
# A command over all nodes of a Slurm job, by default the whole pipeline. In the project's folder, shared by all nodes:
#
#   sbatch deploy/slurm.sh
#   sbatch --nodes=4 --gpus-per-node=8 deploy/slurm.sh trainparity train ddp
#
# The job ends when the command does, with its exit code. The environment is the project's .venv where there is one
# (`make setup` on a node like those that the job gets), else whatever `trainparity` is in PATH.
#SBATCH --job-name=trainparity
#SBATCH --output=trainparity-%j.log
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail
[ $# -gt 0 ] || set -- trainparity repro
[ -f params.yaml ] || { echo "no params.yaml in $PWD: say sbatch in the project's folder" >&2; exit 2; }

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export PATH="$PWD/.venv/bin:$PATH"
export TRAINPARITY_NODES=${#hosts[@]}
export TRAINPARITY_RENDEZVOUS="${hosts[0]}:$((20000 + SLURM_JOB_ID % 10000))" # two jobs may share the first node

# This script runs on the first node, and so does the command. On SIGTERM, which Slurm sends two minutes before the time
# limit and to everything when a job is cancelled, DVC would end at once and Slurm then kill its stage; on SIGINT it
# waits until the stage has written its checkpoint. So the command is a process group that gets the one for the other.
set -m
(trap '' TERM; exec "$@") &
run=$! stopped=
trap 'stopped=yes; trap "" TERM; kill -INT -- "-$run"' TERM

# The other nodes take part until the command ends; should they end before, it would wait for them in vain.
others=
if ((TRAINPARITY_NODES > 1)); then
  rest=$((TRAINPARITY_NODES - 1))
  {
    srun --relative=1 --nodes="$rest" --ntasks="$rest" --kill-on-bad-exit=1 trainparity join || true
    echo "the other nodes have ended: stopping" >&2
    kill -TERM $$
  } &
  others=$!
  disown "$others" # bash shall not report its end
fi

code=0
wait "$run" || code=$?
if [ "$stopped" ]; then # that wait was ended by the signal
  code=0
  wait "$run" || code=$?
fi
if [ "$others" ]; then # srun alone: Slurm ends its tasks with the job, and srun would report that as an error
  kill -KILL -- "-$others" 2>/dev/null || true
fi
exit "$code"
