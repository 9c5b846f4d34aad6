#!/usr/bin/env bash
# What the tests of this folder need, on Debian or Ubuntu, as root. Does nothing where it is there.
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
  echo "Slurm cannot be installed here: tests/slurm needs root, apt-get and its packages" >&2
  exit 1
fi
