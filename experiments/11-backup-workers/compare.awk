# Read by run.sh. Of the sweeps' runs.csv, of "steps" and then of "main", and of lines "spread N rate update_s equal_s
# order late": writes updates/results.csv (the time of an update), best/results.csv (the best N), table.md and
# picture.svg. Where a run has not reached the target there is no time to it.
#
# The times of neighbors differ by less than the seeds do. So all are smoothed in the same way: the updates to a target
# are a + b / N, as those over the batch size (McCandlish et al. 2018, arXiv 1812.06162), times the time of an update.

FNR == 1 {
  file++
}

file < 3 && FNR == 1 {
  names = split($0, name, ",")
  for (i = 1; i <= names; i++)
    from_end[name[i]] = names - i # the name of a run has commas
  next
}

file < 3 {
  fields = split($0, field, ",")
  if (field[1] != "final")
    next
  split(field[3], jitter, " ")
  key = file == 1 ? field[2] : jitter[2] " " field[2]
  value = field[fields - from_end[file == 1 ? "target.step" : "target.train_s"]]
  runs[key]++
  reached[key] += value != ""
  sum[key] += value
  squares[key] += value * value
  next
}

# The mean over the runs, if all have reached the target.
function mean_of(key) {
  return reached[key] == runs[key] && runs[key] > 0 ? sum[key] / runs[key] : "none"
}

{
  key = $1 " " $2
  if (!($1 in count))
    spread[++spreads] = $1
  at[$1, ++count[$1]] = $2
  rate[key] = $3
  equal_s = $5
  update[key] = $4 / equal_s
  order[key] = $6
  late[key] = $7
  updates[key] = mean_of($2)
  mean[key] = mean_of(key)
  deviation[key] = runs[key] > 1 ? sqrt((squares[key] - sum[key] ^ 2 / runs[key]) / (runs[key] - 1)) : 0
  taken[key] = mean[key] == "none" ? "none" : mean[key] / $4 # updates
}

# Sets a and b of the updates to the target, a + b / N: least squares of the relative differences.
function fit(s, values,   k, n, y, p, q, r, u, v, d) {
  for (k = 1; k <= count[s]; k++) {
    n = at[s, k]
    y = values[s " " n]
    if (y == "none")
      continue
    p += 1 / (y * y)
    q += 1 / (n * y * y)
    r += 1 / (n * n * y * y)
    u += 1 / y
    v += 1 / (n * y)
  }
  d = p * r - q * q
  a = d ? (u * r - v * q) / d : 0
  b = d ? (p * v - q * u) / d : 0
}

# seconds[by, s, N]: of the updates a + b / N, each of the time update_of. Sets best_n[by, s].
function predict(by, s, update_of,   k, n) {
  for (k = 1; k <= count[s]; k++) {
    n = at[s, k]
    seconds[by, s, n] = (a + b / n) * update_of[s " " n] * equal_s
    if (!((by, s) in best_n) || seconds[by, s, n] < seconds[by, s, best_n[by, s]])
      best_n[by, s] = n
  }
}

function number(value, format) {
  return value == "none" ? "-" : sprintf(format, value)
}

function mark(by, n) {
  return sprintf("%.3f", seconds[by, s, n]) (best_n[by, s] == n ? " least" : "")
}

function x_of(n) { return 56 + (n - 3) / 14 * 368 }
function y_of(seconds) { return 290 - seconds / top * 260 }

function curve(i, s, by, style,   k) {
  printf "<polyline class=\"s%d %s\" fill=\"none\" points=\"", i - 1, style > picture
  for (k = 1; k <= count[s]; k++)
    printf "%.1f,%.1f ", x_of(at[s, k]), y_of(seconds[by, s, at[s, k]]) > picture
  print "\"/>" > picture
}

function draw(   i, k, s, key, n, tick) {
  for (key in mean)
    if (mean[key] != "none" && mean[key] + deviation[key] > top)
      top = mean[key] + deviation[key]
  top *= 1.02
  print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"560\" height=\"336\" viewBox=\"0 0 560 336\">" > picture
  print "<style>.s0{color:#0072b2}.s1{color:#d55e00}.s2{color:#008a64}.line{stroke:currentColor;stroke-width:2}" \
    ".lead{stroke:currentColor;stroke-width:1.2;stroke-dasharray:2 3}.dot{fill:currentColor}" \
    ".bar{stroke:currentColor}.axis{stroke:#5b6570}" \
    "text{font:12px 'DejaVu Sans',Verdana,Arial,sans-serif;fill:#1c2126}</style>" > picture
  print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>" > picture
  print "<line class=\"axis\" x1=\"56\" y1=\"290\" x2=\"424\" y2=\"290\"/>" > picture
  print "<line class=\"axis\" x1=\"56\" y1=\"30\" x2=\"56\" y2=\"290\"/>" > picture
  for (n = 4; n <= 16; n += 2)
    printf "<text text-anchor=\"middle\" x=\"%.1f\" y=\"306\">%d</text>\n", x_of(n), n > picture
  tick = top > 2 ? 1 : 0.5
  for (n = 0; n <= top; n += tick)
    printf "<text text-anchor=\"end\" x=\"50\" y=\"%.1f\">%g</text>\n", y_of(n) + 4, n > picture
  print "<text text-anchor=\"middle\" x=\"240\" y=\"326\">N, gradients of 16 workers in an update</text>" > picture
  print "<text x=\"8\" y=\"18\">Seconds to the target: measured, and predicted</text>" > picture
  for (i = 1; i <= spreads; i++) {
    s = spread[i]
    curve(i, s, "order", "lead")
    curve(i, s, "late", "line")
    for (k = 1; k <= count[s]; k++) {
      key = s " " at[s, k]
      if (mean[key] == "none")
        continue
      printf "<circle class=\"s%d dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", i - 1, x_of(at[s, k]),
        y_of(mean[key]) > picture
      printf "<line class=\"s%d bar\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", i - 1, x_of(at[s, k]),
        x_of(at[s, k]), y_of(mean[key] - deviation[key]), y_of(mean[key] + deviation[key]) > picture
    }
    printf "<text class=\"s%d\" style=\"fill:currentColor\" x=\"434\" y=\"%d\">spread %s</text>\n", i - 1, 30 + 18 * i,
      s > picture
  }
  print "<text x=\"434\" y=\"110\">dots: measured</text>" > picture
  print "<text x=\"434\" y=\"128\">line: late workers</text><text x=\"434\" y=\"144\">counted</text>" > picture
  print "<text x=\"434\" y=\"162\">dotted: order</text><text x=\"434\" y=\"178\">statistics alone</text>" > picture
  print "</svg>" > picture
}

END {
  picture = out "/picture.svg"
  updates_csv = out "/updates/results.csv"
  best_csv = out "/best/results.csv"
  table = out "/table.md"
  print "spread,collect,update,order,late,over_order,over_late" > updates_csv
  print "spread,measured,order,late,off_order,off_late,cost_order,cost_late" > best_csv
  printf "| spread | N | rate | updates to the target, equal times | time of an update | N-th of 16 " > table
  print "| with late workers | s to the target: mean (standard deviation) | smoothed | predicted: N-th of 16 " \
    "| predicted: with late workers |" > table
  print "|---|---|---|---|---|---|---|---|---|---|---|" > table
  for (i = 1; i <= spreads; i++) {
    s = spread[i]
    fit(s, taken)
    predict("measured", s, update)
    fit(s, updates)
    predict("order", s, order)
    predict("late", s, late)
    for (k = 1; k <= count[s]; k++) {
      n = at[s, k]
      key = s " " n
      printf "%s,%d,%.4f,%.4f,%.4f,%.4f,%.4f\n", s, n, update[key], order[key], late[key],
        update[key] / order[key], update[key] / late[key] > updates_csv
      printf "| %s | %d | %s | %s | %.3f | %.3f | %.3f | %s | %s | %s | %s |\n", s, n, rate[key],
        number(updates[key], "%.1f"), update[key], order[key], late[key],
        number(mean[key], "%.3f") (mean[key] == "none" ? "" : sprintf(" (%.3f)", deviation[key])),
        mark("measured", n), mark("order", n), mark("late", n) > table
    }
    n = best_n["measured", s]
    printf "%s,%d,%d,%d,%d,%d,%.4f,%.4f\n", s, n, best_n["order", s], best_n["late", s], n - best_n["order", s],
      n - best_n["late", s], seconds["measured", s, best_n["order", s]] / seconds["measured", s, n],
      seconds["measured", s, best_n["late", s]] / seconds["measured", s, n] > best_csv
  }
  draw()
}
