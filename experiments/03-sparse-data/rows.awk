# Rows for Hogwild!, as libsvm text:
#
#   awk -f rows.awk -v make=rare news20.svm news20.svm   two classes of texts, without words that are in 1 % of them
#   awk -f rows.awk -v make=words news20.svm             with all words
#   awk -f rows.awk -v make=folded news20.svm            words j, j + 512, j + 1024, .. are one feature
#   pixels | awk -f rows.awk -v make=images              class and pixels, separated by spaces: classes 0 to 4, 5 to 9
#   awk -f rows.awk -v make=sparse                       3,000 random rows: 20 of 2,000 features
#   awk -f rows.awk -v make=dense                        3,000 random rows: all of 40 features, none negative

# Returns a random number of [0, 1): the generator of Park and Miller (1988), the same on every machine.
function uniform() {
  state = state * 16807 % 2147483647
  return state / 2147483647
}

# Prints a row; its class is the sign of a sum with random coefficients.
function random_row(features, entries,   e, j, x, sum, text) {
  split("", seen)
  for (e = 1; e <= entries; e++) {
    do
      j = entries == features ? e : int(uniform() * features) + 1
    while (j in seen)
    x = entries == features ? 0.5 + uniform() : 1
    seen[j] = x
    sum += coefficient[j] * (entries == features ? x - 1 : x)
  }
  text = sum > 0 ? 1 : -1
  for (j = 1; j <= features; j++)
    if (j in seen)
      text = text " " j ":" seen[j]
  print text
}

BEGIN {
  state = 1
  if (make == "sparse" || make == "dense") {
    features = make == "sparse" ? 2000 : 40
    entries = make == "sparse" ? 20 : 40
    for (j = 1; j <= features; j++)
      coefficient[j] = uniform() - 0.5
    for (row = 0; row < 3000; row++)
      random_row(features, entries)
    exit
  }
}
make == "rare" && NR == FNR {
  rows++
  for (i = 2; i <= NF; i++) {
    split($i, entry, ":")
    texts[entry[1]]++
  }
  next
}
make == "images" {
  text = $1 < 5 ? -1 : 1
  for (i = 2; i <= NF; i++)
    if ($i > 0)
      text = text " " (i - 1) ":" $i
  print text
  next
}
{
  text = $1 <= 10 ? -1 : 1
  split("", sum)
  for (i = 2; i <= NF; i++) {
    split($i, entry, ":")
    if (make == "folded")
      sum[entry[1] % 512 + 1] += entry[2]
    else if (make == "words" || texts[entry[1]] < 0.01 * rows)
      text = text " " $i
  }
  for (j = 1; j <= 512; j++)
    if (j in sum)
      text = text " " j ":" sum[j]
  print text
}
