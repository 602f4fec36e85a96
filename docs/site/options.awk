# The options as a page: awk -f options.awk LIST LIST, the output of trireme options, twice: columns are measured first.
function plain(text) {
  gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/\|/, "\\\\|", text); gsub(/\*/, "\\*", text)
  gsub(/@/, "\\@", text); gsub(/--[a-z]+/, "`&`", text)
  return text
}
NR == FNR {
  if (length($1) > name) name = length($1)
  all[NR] = $0
  next
}
FNR == 1 {
  first = name + 2 + 6 + 2 + 1
  for (i in all) {
    word = substr(all[i], first); sub(/ .*/, "", word)
    if (length(word) > width) width = length(word)
  }
}
{
  section = $1
  if (!sub(/\..*/, "", section)) section = "model"
  if (section != before) {
    printf "\n## %s\n\n| option | type | default | range | meaning |\n|---|---|---|---|---|\n", section
    before = section
  }
  given = substr($0, first, width); sub(/ +$/, "", given)
  rest = substr($0, first + width + 2); range = ""
  if (rest !~ /^ / && match(rest, /  +/)) { range = substr(rest, 1, RSTART - 1); rest = substr(rest, RSTART + RLENGTH) }
  sub(/^ +/, "", rest); gsub(/\|/, " | ", range)
  printf "| `%s` | %s | %s | %s | %s |\n", $1, $2, plain(given), plain(range), plain(rest)
}
