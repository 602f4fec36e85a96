# Draws the files of fit.awk, NAME-M.txt: the mean weight over updates / M as dots, joined; of exponential times the
# prediction as a line. The axes are 0 to 7.5 and 0 to 2.2.
#
#   awk -f picture.awk exponential-4.txt lognormal-16.txt ... > picture.svg

function x_of(t, workers) { return 56 + t / workers * 368 / 7.5 }
function y_of(b) { return 234 - b * 206 / 2.2 }
function text(class, anchor, x, y, what) {
  printf "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, anchor, x, y, what
}

FNR == 1 {
  series[++count] = substr(FILENAME, 1, length(FILENAME) - 4)
  split(series[count], part, "-")
  workers = part[2]
  names[count] = part[1] " times, " workers " workers"
  predicted = part[1] == "exponential" ? "M" x_of(0, 1) "," y_of(0) : ""
  path[count] = predicted
  line[count] = sprintf("M%.1f,%.1f", x_of(0, 1), y_of(0))
}
{
  at = sprintf("%.1f,%.1f", x_of($1, workers), y_of($2))
  dots[count] = dots[count] sprintf("<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.8\"/>", count - 1,
                                    x_of($1, workers), y_of($2))
  line[count] = line[count] " " at
  if (predicted != "")
    path[count] = path[count] sprintf(" %.1f,%.1f", x_of($1, workers), y_of($3))
}
END {
  height = 304 + 18 * count + 8
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"440\" height=\"%d\" viewBox=\"0 0 440 %d\">\n", height, height
  print "<style>.s0{color:#0072b2}.s1{color:#d55e00}.s2{color:#008a64}.s3{color:#b65c92}"
  print ".grid{stroke:#e3e7eb}.axis{stroke:#5b6570}.tick,.name,.label{font-size:12px}.tick,.name{fill:#5b6570}"
  print ".label{fill:#1c2126}.line,.thin{fill:none;stroke:currentColor;stroke-width:2}.thin{stroke-width:1;opacity:.5}"
  print ".dot{fill:currentColor;stroke:#fff}svg{font-family:'DejaVu Sans',Verdana,Arial,sans-serif}"
  print ".title{font-size:14px;fill:#1c2126}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
  text("title", "start", 8, 18, "Mean weight (dots), momentum 1 - 1/M (lines)")
  print "<g transform=\"translate(0,24)\">"
  for (b = 0; b <= 2; b += 0.5) {
    printf "<line class=\"grid\" x1=\"56\" y1=\"%.1f\" x2=\"424\" y2=\"%.1f\"/>\n", y_of(b), y_of(b)
    text("tick", "end", 48, y_of(b) + 4, sprintf("%.1f", b))
  }
  for (t = 0; t <= 7; t++)
    text("tick", "middle", x_of(t, 1), 252, t)
  print "<line class=\"axis\" x1=\"56\" y1=\"234\" x2=\"424\" y2=\"234\"/>"
  text("name", "middle", 240, 272, "updates / M")
  for (i = 1; i <= count; i++)
    printf "<path class=\"%s s%d\" d=\"%s\"/>\n%s\n", path[i] == "" ? "thin" : "line", i - 1,
           path[i] == "" ? line[i] : path[i], dots[i]
  print "</g>"
  for (i = 1; i <= count; i++) {
    printf "<circle class=\"dot s%d\" cx=\"19\" cy=\"%d\" r=\"4\"/>\n", i - 1, 292 + 18 * i
    text("label", "start", 36, 296 + 18 * i, names[i])
  }
  print "</svg>"
}
