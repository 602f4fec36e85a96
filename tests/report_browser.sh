#!/bin/bash
# A browser draws the report's page: its screenshot is not blank. In pictures no text covers another one, or lies outside.
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

# Long names and titles, small panels, bars, schedules. The last picture has texts that cover one another: a control.
long=runs-of-a-long-name-that-needs-more-room-than-a-column-of-a-paper-has
for k in 1 2 3 4 5 6 7; do
  mkdir "$long-$k"
  sed "s/asgd/ssp/; s/seed: 1/seed: $k, lanes: $k/" asgd-1/config.yaml > "$long-$k/config.yaml"
  cp asgd-1/metrics.jsonl asgd-1/summary.json "$long-$k"
done
{ printf '{"traceEvents":['
  for k in 0 1 2; do
    printf '\n{"name":"forward","cat":"compute","ph":"X","ts":%d,"pid":0,"tid":%d,"dur":900,"args":{"step":1,"micro":3}},' \
      $((k * 500)) $k
  done
  printf '\n{"name":"x","cat":"wait","ph":"X","ts":900,"pid":0,"tid":0,"dur":900,"args":{"step":2}}\n]}\n'; } > "$long-1/trace.json"
picture() { # picture NAME RUN... FLAG...
  "$TRIREME" report "${@:2}" --svg="$1.svg" --title="$1: a title that is longer than a picture of a column's width" \
    > report.log 2>&1 || { cat report.log; fail "picture $1"; }
}
picture few asgd-? "$long-1" "$long-2" --picture=curves
picture many asgd-? "$long"-? --picture=curves
picture target asgd-? "$long"-? --picture=target --target=0.5
picture gantt "$long"-? --picture=gantt
sed 's/y="[0-9.]*"/y="50"/g; s/ x="[0-9.]*"/ x="50"/g' few.svg > control.svg
{ echo '<!DOCTYPE html><meta charset="utf-8"><body>'
  for name in few many target gantt control; do echo "<div id=$name>$(cat $name.svg)</div>"; done
  cat << 'EOF'
<pre id="out"></pre><script>
const out = [];
for (const div of document.querySelectorAll('div')) {
  const frame = div.querySelector('svg').getBoundingClientRect();
  const texts = [...div.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([text, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
      out.push(`${div.id}: outside: ${text}`);
    for (const [other, b] of texts.slice(0, i))
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        out.push(`${div.id}: ${other} covers ${text}`);
  });
  out.push(`${div.id}: ${texts.length} texts`);
}
document.getElementById('out').textContent = out.join('\n');
</script>
EOF
} > pictures.html
HOME=$PWD timeout -k 5 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --dump-dom \
  "file://$PWD/pictures.html" 2> browser.log | sed -n '/<pre id="out">/,/<\/pre>/p' | sed 's/<[^>]*>//g' > texts
[ "$(grep -c ' texts$' texts)" -eq 5 ] || { cat texts browser.log; fail "the browser does not say where texts are"; }
grep -q '^control: .* covers ' texts || fail "texts that cover one another are not found"
! grep -v '^control' texts | grep ' covers \|: outside: ' || fail "texts cover one another, or lie outside of pictures"
pass "texts of pictures"
finish
