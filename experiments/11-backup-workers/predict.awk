# The time of an update that takes the first N of P = 16 gradients, in units of a gradient's median time, which is
# lognormal with the spread: without any measurement.
#
#   awk -v spread=0.5 -f predict.awk      lines "N order late"
#
# order: the mean of the N-th order statistic of P times, all workers beginning together: the integral of exp(spread z)
# with the density N C(P, N) F^(N-1) (1 - F)^(P-N) f of the N-th of P standard normal variables.
# late: the mean over UPDATES updates where a worker that is late ends its gradient first, which is dropped, and begins
# after the others.

function order_statistic(n,   z, h, F, f, log_count, i, sum) {
  log_count = log(n)
  for (i = 1; i <= n; i++)
    log_count += log(P - n + i) - log(i)
  h = 0.004
  for (z = -8; z < 8; z += h) {
    f = exp(-z * z / 2) / sqrt(2 * PI)
    F += f * h
    if (F < 1)
      sum += exp(log_count + (n - 1) * log(F) + (P - n) * log(1 - F) + spread * z) * f * h
  }
  return sum
}

function lognormal() {
  return exp(spread * sqrt(-2 * log(1 - rand())) * cos(2 * PI * rand()))
}

# Lets the workers that begin at start[] make an update, and sets begun to its time, which is when those begin again
# whose gradients have come by then. Those that are late begin when theirs, of older weights, has come.
function update(n,   i, j, end, sorted, t) {
  for (i = 1; i <= P; i++) {
    end[i] = start[i] + lognormal()
    for (j = i; j > 1 && sorted[j - 1] > end[i]; j--)
      sorted[j] = sorted[j - 1]
    sorted[j] = end[i]
  }
  t = sorted[n]
  for (i = 1; i <= P; i++)
    if (start[i] <= t)
      start[i] = end[i] > t ? end[i] : t
  begun = t
}

BEGIN {
  P = 16
  PI = atan2(0, -1)
  UPDATES = 4000
  srand(1)
  for (n = 1; n <= P; n++) {
    for (i = 1; i <= P; i++)
      start[i] = 0
    begun = 0
    for (u = 0; u < UPDATES; u++)
      update(n)
    printf "%d %.4f %.4f\n", n, order_statistic(n), begun / UPDATES
  }
}
