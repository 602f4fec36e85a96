#!/bin/bash
# A browser draws the report's page: its screenshot is not blank.
set -u
. "$(dirname "$0")/lib.sh"
TRIREME=$(realpath "$TRIREME")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  skip "no browser (Debian: chromium)"
scratch
for k in 1 2 3; do
  mkdir -p "asgd-$k"
  printf 'model: m\nstrategy: {name: asgd}\nrun: {seed: %d}\n' $k > "asgd-$k/config.yaml"
  printf '{"status":"done"}\n' > "asgd-$k/summary.json"
  awk -v k=$k 'BEGIN { for (i = 1; i <= 20; i++)
    printf "{\"step\":%d,\"epoch\":%d,\"samples\":%d,\"wall_s\":%d,\"loss\":%g,\"test_loss\":1,\"test_accuracy\":%g}\n",
           i, i, i, i, 2 + k / i, i / 25 + k / 100 }' > "asgd-$k/metrics.jsonl"
done
"$TRIREME" report asgd-? --out=page.html > report.log 2>&1 || { cat report.log; fail "the page"; }
HOME=$PWD timeout -k 5 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1300,1600 \
  --user-data-dir="$PWD/profile" --screenshot="$PWD/page.png" "file://$PWD/page.html" > browser.log 2>&1
[ "$(head -c 4 page.png 2> /dev/null | tail -c 3)" = PNG ] || { tail -3 browser.log; fail "no screenshot"; }
# a blank page of this size compresses to a few kilobytes
[ "$(wc -c < page.png)" -gt 40000 ] || fail "the screenshot is blank: $(wc -c < page.png) bytes"
echo '<!DOCTYPE html><p>' > blank.html
HOME=$PWD timeout -k 5 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1300,1600 \
  --user-data-dir="$PWD/profile" --screenshot="$PWD/blank.png" "file://$PWD/blank.html" > browser.log 2>&1
[ "$(wc -c < page.png)" -gt $((5 * $(wc -c < blank.png))) ] || fail "the screenshot is not larger than a blank one"
pass "the page in $(basename "$browser")"
finish
