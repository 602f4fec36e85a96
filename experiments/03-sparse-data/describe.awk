# Describes a libsvm file in a line of a table. Features: those that occur; frequent: share of the rows with the most
# frequent one; mean row: squared length m of the mean of the rows, each of which is scaled to length 1. Along that mean
# the loss has at least a curvature of m / 4 where the weights are 0, and w[t+1] = w[t] - rate m / 4 w[t-31] falls if
# rate m / 4 is below 2 sin(pi / 126), from the roots of its characteristic polynomial: the limit of the rate.
{
  squares = 0
  for (i = 2; i <= NF; i++) {
    split($i, entry, ":")
    squares += entry[2] * entry[2]
  }
  for (i = 2; i <= NF; i++) {
    split($i, entry, ":")
    sum[entry[1]] += entry[2] / sqrt(squares)
    rows[entry[1]]++
  }
  entries += NF - 1
}
END {
  for (j in sum) {
    features++
    mean += (sum[j] / NR) ^ 2
    if (rows[j] > most)
      most = rows[j]
  }
  printf "| %s | %d | %d | %.1f | %.3f | %.3f | %.4f | %.2g |\n", name, NR, features, entries / NR,
         100 * entries / NR / features, most / NR, mean, 8 * sin(atan2(0, -1) / 126) / mean
}
