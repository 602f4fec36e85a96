# A Markdown file as doxygen reads it: headings get names, by which links find them, and files that are named are links.
#   awk -v source=FOLDER -v path=PATH -f page.awk FILE
# PATH: from the top of the source. FOLDER has the files `pages` and `headers`: such paths of all that is on the site.

# path_of PATH FOLDER: a path relative to a folder, from the top
function path_of(path, folder,   part, n, i, kept, out) {
  n = split(folder (folder == "" ? "" : "/") path, part, "/")
  for (i = 1; i <= n; i++) {
    if (part[i] == ".." && kept) kept--
    else if (part[i] != "." && part[i] != "") out[++kept] = part[i]
  }
  path = ""
  for (i = 1; i <= kept; i++) path = path (i > 1 ? "/" : "") out[i]
  return path
}

# name_of PATH: the name of a page
function name_of(path) { gsub(/[^A-Za-z0-9]+/, "_", path); return "page_" path }

# anchor_of HEADING: the part of a link behind #, as forges make it
function anchor_of(text) {
  gsub(/[`*]/, "", text); text = tolower(text); gsub(/ /, "-", text); gsub(/[^a-z0-9_-]/, "", text)
  return text
}

# target_of PATH: the name of what a path, from the folder or from the top, is on the site; "" if it is not there
function target_of(path,   try, i) {
  for (i = 0; i < 3; i++) {
    try = i == 0 ? path_of(path, folder) : i == 1 ? path_of(path, "") : path_of(path, "src")
    if (try in page) return name_of(try)
    if (try "/README.md" in page) return name_of(try "/README.md")
    if (try in header) return header[try]
  }
  return ""
}

# code TEXT: a part of a line in backquotes, as a link if it is a file of the site, or a page made of what a command
# prints
function code(text,   name) {
  if (path == "docs/README.md" && text ~ /^trireme /)
    return "[`" text "`](@ref page_" (text ~ /options/ ? "options" : "commands") "_md)"
  name = text ~ /^[A-Za-z0-9_.\/-]+(\/|\.md|\.h)$/ && text !~ /^\// ? target_of(text) : ""
  if (name != "" && name != here) return "[" text "](@ref " name ")"
  return text ~ /'/ ? "``" text "``" : "`" text "`" # in single ones doxygen ends at '
}

# link TEXT TARGET IMAGE: a link or an image
function link(text, target, image,   anchor, name) {
  if (target ~ /^[a-z]+:/) return "[" text "](" target ")"
  if (image) {
    name = path_of(target, folder); gsub(/\//, "-", name)
    return "<img src=\"" name "\" alt=\"" text "\">"
  }
  anchor = index(target, "#") ? substr(target, index(target, "#") + 1) : ""
  sub(/#.*/, "", target)
  name = target == "" ? here : target_of(target)
  if (name == "") return text
  return "[" text "](@ref " name (anchor == "" ? "" : "_" anchor) ")"
}

BEGIN {
  folder = path ~ /\// ? path : ""; sub(/\/[^\/]*$/, "", folder)
  here = name_of(path)
  while ((getline line < (source "/pages")) > 0) page[line] = 1
  while ((getline line < (source "/headers")) > 0) {
    header[line] = line
    sub(/^src\//, "", header[line])
  }
}
NR == 1 && /^\|/ { # the table of an experiment
  sub(/^experiments\//, "", path)
  print "# " path " {#" here "}\n\nThe experiment: " link(folder, "README.md") "\n"
  titled = 1
}
/^ *```/ { fence = !fence; if (fence) sub(/ (file|into|run).*/, ""); print; next }
fence || /^    / { print; next }
/^#+ / {
  heading = $0; sub(/^#+ /, "", heading)
  anchor = anchor_of(heading)
  if (count[anchor]++) anchor = anchor "-" count[anchor] - 1
  print $0 " {#" here (titled ? "_" anchor : "") "}"
  if (!titled++ && path != "docs/README.md") print "\n[TOC]\n"
  next
}
{
  out = ""; rest = $0
  while (match(rest, /`[^`]+`|!?\[[^]]*\]\([^) ]+\)|\\/)) {
    out = out substr(rest, 1, RSTART - 1)
    token = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
    if (token ~ /^`/) out = out code(substr(token, 2, length(token) - 2))
    else if (token == "\\") { out = out "\\" substr(rest, 1, 1); rest = substr(rest, 2) }
    else {
      image = token ~ /^!/; at = index(token, "](")
      out = out link(substr(token, 2 + image, at - 2 - image), substr(token, at + 2, length(token) - at - 2), image)
    }
  }
  print out rest
}
