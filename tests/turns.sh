#!/bin/bash
# Starts a test of make check. With make -j several run at a time, but those that measure how long something takes, or
# whose results depend most on the order of the ranks, run alone; they are the last scripts of the list, so that no
# other script waits for them.
#
#   turns.sh COMMAND... TEST    without flock all run at once, as make says
command -v flock > /dev/null || exec "$@"
name=${!#}
name=${name##*/}
case ${name%.sh} in
  async_methods | async_signal | background | bench | doctor | doctor_hosts | hung_files | lost_network | plan | \
    rank_times | sbatch | slurm | stall) mode=--exclusive ;;
  *) mode=--shared ;;
esac
exec flock --close $mode "${top_builddir:?}/config.status" "$@"
