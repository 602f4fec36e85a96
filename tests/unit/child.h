/* Runs a function in a child process; captures its stderr and its exit status. */
#pragma once

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `work` in a child whose stderr is ends[1]; returns what is read from ends[0] and the exit status. */
static inline int child_read(void (*work)(void), const int ends[2], char *text, size_t capacity)
{
  fflush(NULL);
  const pid_t child = fork();
  if (child < 0)
    return -1;
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    work();
    fflush(stderr);
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; length < capacity - 1 && (got = read(ends[0], text + length, capacity - 1 - length)) > 0;)
    length += (size_t)got;
  text[length] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The child's stderr is a pipe. */
static inline int child_run(void (*work)(void), char *text, size_t capacity)
{
  int ends[2];
  return pipe(ends) == 0 ? child_read(work, ends, text, capacity) : -1;
}
