#include "cli/run_words.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

static const char resume_option[] = "--run.resume=auto";

int run_words_open(struct run_words *words, char *const *word, int count)
{
  *words = (struct run_words){.word = word, .count = count, .train = 1};
  while (words->train < count && strcmp(word[words->train], "train") != 0)
    words->train++;
  if (words->train < count)
    return TRM_OK;
  return trm_error(TRM_USAGE, "run: no \"trireme train\" among the words of the command; trireme run --help shows the "
                   "usage");
}

/* -- places for hosts */

enum place { PLACE_HOSTS, PLACE_NODES, PLACE_RANKS, PLACES };
static const char *const places[PLACES] = {"{hosts}", "{nodes}", "{ranks}"};

/* Returns the kind of the first place in a text, and sets *at to it; PLACES: there is none. */
static enum place words_find_place(const char *text, const char **at)
{
  enum place first = PLACES;
  for (enum place i = 0; i < PLACES; i++) {
    const char *found = strstr(text, places[i]);
    if (found && (first == PLACES || found < *at)) {
      *at = found;
      first = i;
    }
  }
  return first;
}

bool run_words_name_hosts(const struct run_words *words)
{
  const char *at;
  for (int i = 0; i < words->count; i++)
    if (words_find_place(words->word[i], &at) < PLACES)
      return true;
  return false;
}

static void words_append_place(char **text, enum place place, const struct run_hosts *hosts)
{
  if (place == PLACE_HOSTS)
    for (int i = 0; i < hosts->count; i++)
      trm_append(text, "%s%s", i > 0 ? "," : "", hosts->name[i]);
  else
    trm_append(text, "%d", place == PLACE_NODES ? hosts->count : hosts->count * hosts->ranks_per_host);
}

/* Returns a word with its places filled. */
static char *words_fill(const char *word, const struct run_hosts *hosts)
{
  char *text = trm_strdup("");
  const char *at = NULL;
  for (enum place place; (place = words_find_place(word, &at)) < PLACES; word = at + strlen(places[place])) {
    trm_append(&text, "%.*s", (int)(at - word), word);
    words_append_place(&text, place, hosts);
  }
  trm_append(&text, "%s", word);
  return text;
}

/* -- lists of words */

/* The commands of unlike ranks (mpiexec A : B) each get the option at their end, where it overrides those before. */
char **run_words_of_job(const struct run_words *words, const struct run_hosts *hosts, bool resumes)
{
  char **list = trm_alloc((2 * (size_t)words->count + 2) * sizeof *list, "the words of a command");
  bool trains = false;
  int n = 0;
  for (int i = 0; i <= words->count; i++) {
    const bool ends = i == words->count || strcmp(words->word[i], ":") == 0;
    if (ends && trains && resumes)
      list[n++] = trm_strdup(resume_option);
    if (i < words->count)
      list[n++] = words_fill(words->word[i], hosts);
    trains = !ends && (trains || strcmp(words->word[i], "train") == 0);
  }
  return list;
}

char **run_words_on_host(const struct run_words *words, const char *host, const char *const *program)
{
  char *name = (char *)host;
  const struct run_hosts one = {.name = &name, .count = 1, .ranks_per_host = 1};
  const int launcher = words->train - 1;
  int count = 0;
  while (program[count])
    count++;
  char **list = trm_alloc(((size_t)(launcher + count) + 1) * sizeof *list, "the words of a command");
  for (int i = 0; i < launcher; i++)
    list[i] = words_fill(words->word[i], &one);
  for (int i = 0; i < count; i++)
    list[launcher + i] = trm_strdup(program[i]);
  return list;
}

void run_words_free(char **list)
{
  for (char **word = list; word && *word; word++)
    trm_free(*word);
  trm_free(list);
}
