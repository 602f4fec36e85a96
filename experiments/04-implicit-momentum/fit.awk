# Fits the momentum and the rate of SGD with momentum to the mean weight of many runs:
#
#   awk -v times=NAME -v workers=M -v curve=FILE -f fit.awk metrics.jsonl...
#
# Prints a line of results.csv. Writes "update mean predicted" to FILE, a line for each evaluation; predicted: by a
# momentum of 1 - 1/M and a rate of eta / M.
#
# The mean weight is fitted at the evaluations up to update 15 M / 2; then the first workers have no more batches, and
# the others' gradients are no longer a random worker's. The momentum and the rate are those of the recursion
#
#   b[t+1] - b[t] = momentum (b[t] - b[t-1]) - rate 2 (b[t] - 1),  b[0] = 0, b[1] = 2 eta (a gradient at b[0] in full)
#
# that is closest to it in squares. The standard error is that of the mean of the fits to ten parts of the runs.

# Returns the number of a key of the line; "": none.
function number(key) {
  if (!match($0, "\"" key "\":[-+0-9.e]+"))
    return ""
  return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}

# Sets b[0] to b[last] of the recursion.
function recur(momentum, rate,   t) {
  b[0] = 0
  b[1] = 2 * eta
  for (t = 1; t < last; t++)
    b[t + 1] = b[t] + momentum * (b[t] - b[t - 1]) - rate * 2 * (b[t] - 1)
}

# Returns the mean squared distance of the recursion from the mean weight of a part of the runs.
function distance(part, momentum, rate,   i, d, sum) {
  recur(momentum, rate)
  for (i = 1; i <= points; i++) {
    d = b[step[i]] - sum_of[part, step[i]] / runs[part]
    sum += d * d
  }
  return sum / points
}

# Sets momentum and rate to the closest ones: on a grid, which then is finer around them, eight times.
function fit(part,   i, k, n, width, best, d, m, r, near_m, near_r) {
  momentum = 0.5
  rate = eta / 2
  best = -1
  for (width = 0.5; width > 1e-4; width *= 0.3) {
    near_m = momentum
    near_r = rate
    for (i = -5; i <= 5; i++)
      for (k = -5; k <= 5; k++) {
        m = near_m + width * i / 5
        r = near_r + width * k / 5 * eta
        d = distance(part, m, r)
        if (best < 0 || d < best) {
          best = d
          momentum = m
          rate = r
        }
      }
  }
  return best
}

FNR == 1 {
  run++
  runs["all"]++
  runs[run % 10]++
}
number("lr") != "" {
  eta = number("lr")
}
number("validation_loss") != "" && number("step") <= 15 * workers / 2 {
  t = number("step")
  if (!(t in seen)) {
    seen[t] = 1
    step[++points] = t
    last = t
  }
  weight = 8 - sqrt(number("validation_loss"))
  sum_of["all", t] += weight
  sum_of[run % 10, t] += weight
}
END {
  for (part = 0; part < 10 && run >= 10; part++) {
    fit(part)
    sum += momentum
    squares += momentum * momentum
  }
  error = run >= 10 ? sprintf("%.4f", sqrt((squares - sum * sum / 10) / 90)) : ""
  root = sqrt(fit("all"))
  printf "%s,%d,%d,%.4f,%.4f,%s,%.4f,%.4f\n", times, workers, run, 1 - 1 / workers, momentum, error,
         rate * workers / eta, root
  recur(1 - 1 / workers, eta / workers)
  for (i = 1; i <= points; i++)
    printf "%d %.4f %.4f\n", step[i], sum_of["all", step[i]] / run, b[step[i]] > curve
}
