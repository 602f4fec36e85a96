# shellcheck shell=bash
# Copies of the state in the memory of nodes (run.buddy).
mutation 'copies in memory: the partner in the same node' src/train/buddy.c \
  's/first\[rank\] != first\[0\]/first[rank] == first[0]/' test_buddy 1
mutation 'copies in memory: not the newest' src/train/buddy.c 's/found\[rank\] > found\[newest\]/found[rank] < found[newest]/' \
  test_buddy 1
mutation 'copies in memory: the one before removed too early' src/train/buddy.c 's/both \? 1 : 2/1/' test_buddy 2
mutation 'copies in memory: of others' src/train/memory_files.c 's/ && !\(about\.st_mode & 077\)//' test_buddy 1
