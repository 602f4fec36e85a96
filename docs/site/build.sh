#!/bin/bash
# Makes the pages of the documentation, in OUT/html (make docs). From the top of the source:
#   docs/site/build.sh DOXYGEN OUT VERSION PROGRAM HEADER...
# The pages are those in the lists of docs/README.md, which are the navigation, too, the experiments, and commands and
# options as PROGRAM prints them. A warning of doxygen is an error.
set -euo pipefail
doxygen=$1 out=$2 version=$3 program=$4
shift 4
root=$PWD site=$PWD/docs/site
rm -rf "$out/html" "$out/source"
mkdir -p "$out/html" "$out/source/md"
source=$out/source
printf '%s\n' "$@" > "$source/headers"

# Lists of docs/README.md: "group TITLE", or "page PATH TITLE".
sed -n -e 's/^## /group /p' -e 's/^- \[\([^]]*\)\](\([^)]*\)).*/page \2 \1/p' docs/README.md |
  sed -E -e 's,^page \.\./,page ,; t' -e 's,^page ,page docs/,' > "$source/lists"
{
  printf '%s\n' docs/README.md commands.md options.md experiments/*/*.md
  sed -n 's/^page \([^ ]*\) .*/\1/p' "$source/lists"
} | awk '!seen[$0]++' > "$source/pages"

# indented COMMAND...: what it prints, as a block of a page
indented() { echo && "$@" | sed 's/^/    /' && echo; }
{
  echo '# Commands'
  indented "$program" --help
  "$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' | while read -r command; do
    echo "## trireme $command"
    indented "$program" "$command" --help
    case $command in
      data | key | bench)
        "$program" "$command" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' | while read -r part; do
          echo "### trireme $command $part"
          indented "$program" "$command" "$part" --help
        done ;;
    esac
  done
} > "$source/commands.md"
"$program" options > "$source/options.txt"
{
  echo '# Options'
  printf '\nOf a run: in its configuration a section of keys, on the command line `--section.key=value`.\n'
  awk -f "$site/options.awk" "$source/options.txt" "$source/options.txt"
  printf '\n## What cannot be combined\n'
  indented "$program" options --combinations
} > "$source/options.md"

# tab TYPE PAGE TITLE END: an entry of the navigation
tab() { echo "<tab type=\"$1\" url=\"@ref page_$(printf %s "$2" | tr -cs 'A-Za-z0-9' _)\" title=\"$3\"$4>"; }
{
  echo '<doxygenlayout version="1.0"><navindex><tab type="mainpage" visible="no"/>'
  open=
  while read -r kind path title; do
    if [ "$kind" = group ]; then
      [ -z "$open" ] || echo '</tab>'
      open=yes
      echo "<tab type=\"usergroup\" url=\"[none]\" title=\"${path}${title:+ $title}\">"
    elif [ "$path" = experiments/README.md ]; then
      tab usergroup "$path" "$title" ''
      for page in experiments/*/README.md; do tab user "$page" "$(sed -n '1s/^# //p' "$page")" /; done
      echo '</tab>'
    else
      tab user "$path" "$title" /
    fi
  done < "$source/lists"
  cat "$site/layout-end.xml"
} > "$source/layout.xml"

# Images have the names of their folders.
grep / "$source/pages" | while read -r page; do
  sed -n 's/.*!\[[^]]*\](\([^):]*\)).*/\1/p' "$page" | while read -r image; do
    file=${page%/*}/$image
    cp "$file" "$out/html/${file//\//-}"
  done
done

# In one folder, which doxygen does not list.
while read -r page; do
  file=$page
  [ -e "$page" ] || file=$source/$page
  awk -v source="$source" -v path="$page" -f "$site/page.awk" "$file" > "$source/md/${page//\//-}"
done < "$source/pages"
{
  cat "$site/Doxyfile"
  echo "PROJECT_NUMBER = $version"
  echo "OUTPUT_DIRECTORY = $out"
  echo "FILTER_PATTERNS = *.h=\"sed -E -f $site/header.sed\""
  echo "LAYOUT_FILE = $source/layout.xml"
  echo "HTML_EXTRA_STYLESHEET = $site/style.css"
  echo "USE_MDFILE_AS_MAINPAGE = $source/md/docs-README.md"
  echo "STRIP_FROM_PATH = $root/src $root $source/md"
  echo "INPUT = $source/md $*"
} > "$source/Doxyfile"
"$doxygen" "$source/Doxyfile"

# In tables \| is |, and file:PATH is no address.
sed -i -E -e '/markdownTable/s,\\\|,|,g' -e 's,<a href="file:[^"]*">([^<]*)</a>,\1,g' "$out"/html/page_*.html
