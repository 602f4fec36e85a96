# shellcheck shell=bash
# Messages between nodes: collectives over them, and their encryption.
mutation 'messages: no number' mpi/real_secure.c 's/\(\*page\)\[tag % TAGS_IN_PAGE\]\+\+/0/' encrypted_messages.sh
mutation 'messages: what does not verify is taken' mpi/real_secure.c 's/^  if \(!good\)$/  if (0)/' encrypted_messages.sh
mutation 'messages: all ranks on one node' mpi/real_secure.c 's/return s && s->remote\[rank\];/return false;/' \
  encrypted_messages.sh
mutation 'messages: what is sent to a server in plain' mpi/real_calls.c \
  's/    real_message_send\(\*request, next\+\+, in, /    MPI_Isend(in, (int)in_bytes, MPI_BYTE, owner, calls_tag_in(slot), (*request)->comm->mpi, \&(*request)->mpi[next++]); if (0) real_message_send(*request, next, in, /' \
  encrypted_messages.sh
mutation 'messages: no thread takes collectives further' mpi/real_progress.c \
  's/if \(progress_advance\(progress\)\) \{/if (true) {/' test_comm 2
mutation 'messages: one communicator of a rank alone goes on' mpi/real_progress.c \
  's/real = real->next_in_progress\)$/real = NULL)/' test_comm 3
mutation 'messages: a sum in the tree of all ranks' mpi/virtual_collective.c \
  's/op == TRM_TREE_SUM \? power : size/op == TRM_TREE_SUM ? size : size/' test_virtual 1
