# shellcheck shell=bash
# Collectives over messages, and the choice of their algorithms.
mutation 'coll: rounds begin at once' mpi/coll/schedule.c 's/^  s->round\+\+;/  (void)s;/' test_coll 1
mutation 'coll: one tag for all strands' mpi/coll/schedule.c \
  's/\(int\)\(\(s->first_strand \+ (s->begun\+\+)\).*;/0 * (int)\1;/' test_coll 1
mutation 'coll: the last chunk without its last element' mpi/coll/collectives.c \
  's/collectives_add\(s, ops, a, low, high\)/collectives_add(s, ops, a, low, high - (i > 0))/' test_coll 1
mutation 'coll: ranks beyond the power of two not added' mpi/coll/fold.c \
  's/coll_receive_reduce\(s, data, data,/coll_receive(s, data,/' test_coll 1
mutation 'coll: ranks beyond the power of two get nothing' mpi/coll/fold.c \
  's/(coll_send\(s, data, count, rank \+|coll_receive\(s, data, count, rank -) power\);/;/' test_coll 1
mutation 'coll: doubling from the farthest rank' mpi/coll/doubling.c \
  's/int bit = 1; bit < (.*); bit \*= 2/int bit = \1 \/ 2; bit > 0; bit \/= 2/' test_coll 1
mutation 'coll: halving from the farthest rank' mpi/coll/halving.c \
  's/rank \^ 1 << rounds/rank ^ power >> 1 >> rounds/;s/rank >> rounds & 1/rank \& power >> 1 >> rounds/' test_coll 1
mutation 'coll: halving gathers what it has' mpi/coll/halving.c \
  's/kept\[rounds\], given\[rounds\], (.*), false/given[rounds], kept[rounds], \1, false/' test_coll 1
mutation 'coll: ring reduces into the array alone' mpi/coll/ring.c \
  's/round == size - 1 \? mine : block/block/' test_coll 1
mutation 'coll: ring gathers one round less' mpi/coll/ring.c 's/round < size - 1; round/round < size - 2; round/' \
  test_coll 1
mutation 'coll: circulant all-gather of powers of two' mpi/coll/circulant.c \
  's/return distance < size - distance \? .*;/return distance;/' test_coll 1
mutation 'coll: circulant reduce-scatter from the nearest rank' mpi/coll/circulant.c \
  's/int distance = coll_fold_power.*; distance \/= 2/int distance = 1; distance < size; distance *= 2/' test_coll 1
mutation 'coll: blocks that are not adjacent in one message' mpi/coll/circulant.c \
  's/ && b->at\[next\] == b->at\[begin\] \+ count//' test_coll 1
mutation 'coll: broadcast from rank 0' mpi/coll/tree.c 's/\(comm->rank \+ size - root\) % size/comm->rank/' test_coll 1
mutation 'coll: minimum for maximum' mpi/coll/reduce.c \
  's/y\[i\] < x\[i\] \? x\[i\] : y/y[i] < x[i] ? y[i] : x/' test_coll 1
mutation 'coll: cost without the ranks beyond the power of two' mpi/coll/table.c \
  's/coll_fold_power\(ranks\) == ranks \? 0 : /1 ? 0 : /' test_coll 1
mutation 'coll: a ring of one message' mpi/coll/table.c \
  's/return \(ranks - 1\) \* c->alpha/return c->alpha/' test_coll 1
mutation 'coll: choices of the fewest bytes' mpi/coll/choices.c \
  's/below \? choice->bytes > other->bytes/below ? choice->bytes < other->bytes/' test_coll 1
mutation 'coll: choices of either domain' mpi/coll/choices.c 's/ && choice->across_nodes == across_nodes//' test_coll 1
mutation 'coll: unknown entries of files' mpi/coll/choices_file.c 's/if \(!keys\[known\]\)/if (0)/' test_coll 1
mutation 'coll: rank 0 alone has the choices' mpi/coll/choices_file.c \
  's/size_t i = choices->count; i < \(size_t\)count/size_t i = (size_t)count; i < (size_t)count/' test_coll 1
