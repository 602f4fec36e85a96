# The rows of a bench as a Markdown table: our figure, the fastest of the peer, and the ratio. bench: step or gemm.
function text(key) {
  return match($0, "\"" key "\":\"[^\"]*\"") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5) : ""
}
function number(key) {
  return match($0, "\"" key "\":[-+0-9.e]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0
}
text("bench") == bench {
  if (bench == "step") {
    key = text("work") " | " text("values") " | " number("batch")
    seconds = number("step_s")
    rate = number("items_per_s")
  } else {
    key = number("m") " x " number("n") " x " number("k") " " text("transposes") " | " text("values")
    seconds = number("product_s")
    rate = number("gflop_per_s")
  }
  if (!(key in seen)) {
    seen[key] = 1
    order[++rows] = key
  }
  if (text("peer") == "") {
    ours[key] = seconds
    rates[key] = rate
  } else if (!(key in theirs) || seconds < theirs[key]) {
    theirs[key] = seconds
    mode[key] = text("mode")
  }
}
END {
  if (bench == "step")
    print "| model | values | batch | ms | samples or tokens/s | PyTorch ms | ratio | PyTorch runs |\n" \
          "|---|---|---|---|---|---|---|---|"
  else
    print "| m x n x k | values | ms | GFLOP/s | PyTorch ms | ratio | PyTorch runs |\n|---|---|---|---|---|---|---|"
  for (i = 1; i <= rows; i++) {
    key = order[i]
    printf "| %s | %s | %s | %s | %s | %s |\n", key, key in ours ? sprintf("%.4g", 1e3 * ours[key]) : "-",
           key in ours ? sprintf(rates[key] < 100 ? "%.3g" : "%.0f", rates[key]) : "-", key in theirs ? sprintf("%.4g", 1e3 * theirs[key]) : "-",
           key in ours && key in theirs ? sprintf("%.2f", theirs[key] / ours[key]) : "-", mode[key]
  }
}
