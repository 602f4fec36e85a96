# Read by check.sh.

# Returns the value of a key of the line, without quotes; "": none.
function of(key,   at) {
  if (!match($0, "\"" key "\": *(\"[^\"]*\"|[-+0-9.e]+)"))
    return ""
  at = substr($0, RSTART, RLENGTH)
  sub("\"" key "\": *", "", at)
  gsub("\"", "", at)
  return at
}

# Returns the number of the metric in the one row of the file with these values; "none" if there is none.
function find(file, row, metric,   line, fields, n, i, k, pairs, pair, column, names, found, same) {
  n = split(row, pairs, ",")
  found = "none"
  if ((getline line < file) <= 0)
    return found
  k = split(line, names, ",")
  for (i = 1; i <= k; i++)
    column[names[i]] = i
  while ((getline line < file) > 0) {
    split(line, fields, ",")
    same = 1
    for (i = 1; i <= n; i++) {
      split(pairs[i], pair, "=")
      same = same && (pair[1] in column) && fields[column[pair[1]]] == pair[2]
    }
    if (same && (metric in column) && fields[column[metric]] != "")
      found = fields[column[metric]]
  }
  close(file)
  return found
}

/"says"/ && (of("form") == "" || of("form") == form) {
  sweep = of("sweep") == "" ? "main" : of("sweep")
  file = out "/" sweep "/results.csv"
  value = find(file, of("row"), of("metric"))
  relation = of("relation")
  other = of("than") == "" ? of("value") : find(file, of("than"), of("metric"))
  by = of("by") + 0
  if (value == "none" || other == "none")
    good = 0
  else if (relation == "<")
    good = value + by <= other + 0
  else if (relation == ">")
    good = value >= other + by
  else
    good = value - other <= of("tolerance") + 0 && other - value <= of("tolerance") + 0
  printf "%s: %s (%s %s %s%s)\n", good ? "holds" : "DOES NOT HOLD", of("says"), value, relation, other,
         relation == "=" ? " within " of("tolerance") : by ? " by " by : ""
  bad += !good
  checks++
}
END {
  if (!checks)
    print "no check of the form " form
  exit bad > 0 || !checks
}
