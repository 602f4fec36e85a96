# The table of all sweeps, in the order of the files: a row for each method.
#   awk -f table.awk OUT/{fashion,a9a}-{1,8,64}/results.csv
BEGIN { FS = "," }
FNR == 1 {
  for (i = 1; i <= NF; i++)
    column[$i] = i
  parts = split(FILENAME, folder, "/")
  sweep[++sweeps] = folder[parts - 1]
  next
}
{
  method = $column["variant"]
  if (sweeps == 1)
    name[++methods] = method
  lost = $column["runs"] - $column["done"] # failed, diverged, out of time: not in the mean
  text = "-"
  if ($column["done"] > 0)
    text = sprintf("%.2f ± %.2f (%g%s)", 100 * $column["test_accuracy"], 100 * $column["test_deviation"], $column["optim.lr"],
                   $column["edge"] == "yes" ? ", edge" : "")
  if (lost > 0)
    text = text ", " lost " lost"
  accuracy[method, sweeps] = text
  staleness[method, sweeps] = $column["staleness_mean"] == "" ? "-" : sprintf("%.1f", $column["staleness_mean"])
  seconds[method, sweeps] = $column["done"] > 0 ? sprintf("%.2f", $column["train_s"]) : "-"
}
END {
  heading = "| method |"
  line = "|---|"
  for (i = 1; i <= sweeps; i++) {
    split(sweep[i], part, "-")
    heading = heading sprintf(" %s, %d worker%s |", part[1] == "fashion" ? "Fashion-MNIST" : part[1], part[2], part[2] > 1 ? "s" : "")
    line = line "---|"
  }
  print heading " staleness, 8 and 64 workers | modeled s, Fashion-MNIST, 1, 8, 64 workers |"
  print line "---|---|"
  for (m = 1; m <= methods; m++) {
    row = "| " name[m] " |"
    for (i = 1; i <= sweeps; i++)
      row = row " " accuracy[name[m], i] " |"
    print row, staleness[name[m], 2] ", " staleness[name[m], 3] " |", seconds[name[m], 1] ", " seconds[name[m], 2] ", " \
      seconds[name[m], 3] " |"
  }
}
