#!/usr/bin/env bash
# What the tests of this folder need, on Debian or Ubuntu, as root. Does nothing where it is there.
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "tests/slurm starts a Slurm of its own: run it as root, on Debian or Ubuntu" >&2
  exit 1
fi
missing=
for program in slurmctld slurmd sbatch munged shellcheck; do
  command -v "$program" >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
echo "Installing Slurm (there is no$missing)"
export DEBIAN_FRONTEND=noninteractive
if ! apt-get -qq update ||
  ! apt-get -qq install -y --no-install-recommends -o Acquire::Retries=3 \
    slurmctld slurmd slurm-client munge shellcheck >/dev/null; then
  echo "Slurm cannot be installed here: apt-get says why above" >&2
  exit 1
fi
