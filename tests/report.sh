#!/bin/bash
# Reports of synthetic runs: page and plots contain the logged values, names are escaped, extremes survive
# downsampling, a killed run is readable, a damaged one is refused with file and line.
set -u
. "$top_srcdir/tests/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

# make_run NAME LINES [SPIKE]: a run directory; the loss falls from 2 to 1, with 40 at line SPIKE
make_run() {
  mkdir -p "$1"
  printf 'model: mlp 4-3-2 relu\nmodel.init: ""\noptim: {lr: 0.%d, name: sgd}\nrun: {dir: "x"}\n' "$2" > "$1/config.yaml"
  awk -v n="$2" -v spike="${3:-0}" 'BEGIN {
    for (i = 1; i <= n; i++) {
      printf "{\"step\":%d,\"epoch\":%d,\"samples\":%d,\"wall_s\":%g,\"loss\":%g,\"lr\":0.1}\n", i, i * 4 / n, 8 * i,
             i / 100, i == spike ? 40 : 2 - i / n
      if (i % int(n / 4) == 0)
        printf "{\"step\":%d,\"epoch\":%d,\"samples\":%d,\"wall_s\":%g,\"test_loss\":%g,\"test_accuracy\":%g}\n", i,
               i * 4 / n, 8 * i, i / 100, 2.1 - i / n, i / n - 0.02
    } }' > "$1/metrics.jsonl"
  printf '{%s,%s,%s}\n' '"status":"done","strategy":"sync","ranks":2,"layout":"data 2","samples_per_s":12345' \
    '"test_accuracy":0.9812,"test_loss":0.0512' '"weights_sha256":"0123456789abcdef"' > "$1/summary.json"
}
report() { "$TRIREME" report "$@" > report.log 2>&1; }
refused() { # refused STATUS TEXT ARGUMENT...
  local status=$1 text=$2
  shift 2
  report "$@"
  [ $? -eq "$status" ] || { cat report.log; fail "report $*: not status $status"; }
  grep -qF -- "$text" report.log || { cat report.log; fail "report $*: does not say: $text"; }
  pass "report $*: $text"
}

make_run one 40
make_run 'two <i>&' 40
report one 'two <i>&' --out=both.html || { cat report.log; fail "report of two runs"; }
grep -q '98.12 %' both.html || fail "no test accuracy in the table"
grep -q '12,345' both.html || fail "no samples/s in the table"
grep -q 'two &lt;i&gt;&amp;' both.html || fail "the name of a run is not in the page"
! grep -q 'two <i>' both.html || fail "the name of a run is not escaped"
[ "$(grep -c '<figure>' both.html)" -eq 7 ] || fail "not seven curves"
! grep -qE '<script|<link|src=|href=|url\(' both.html || fail "the page needs other files"
grep -q 'lines coincide' both.html || fail "two runs of the same values: one hides the other"
pass "page of two runs"

grep -q 'Settings that differ' both.html && fail "equal settings are listed as different"
make_run other 44
report one other --out=differ.html || fail "report of runs with different settings"
settings=$(sed -n '/Settings that differ/,/<\/table>/p' differ.html | grep -o '<code>[^<]*</code>')
[ "$settings" = '<code>optim.lr</code>' ] || fail "settings that differ: $settings"
grep -q '<td>0.40</td><td>0.44</td>' differ.html || fail "the values that differ are not beside each other"
pass "settings that differ"

make_run long 60000 30000
report long --out=long.html || fail "report of a long run"
[ "$(wc -c < long.html)" -lt 400000 ] || fail "the page of a long run is large: no downsampling"
grep -q 'of 60000 points are drawn' long.html || fail "the downsampling is not mentioned"
top=$(grep -o 'class="thin s0" d="[^"]*"' long.html | head -1 | grep -o ',[0-9.]*' | tr -d , | sort -n | head -1)
at_least 30 "$top" || fail "the highest value is lost: the line begins at $top"
pass "downsampling keeps the extremes, and is mentioned"

make_run bad 40
sed -i '7s/"loss":[^,]*/"loss":null/' bad/metrics.jsonl
report bad --out=nan.html || { cat report.log; fail "a loss that is not finite"; }
grep -q 'was not finite' nan.html || fail "a loss that is not finite is not mentioned"
pass "a loss that is not finite"

make_run traced 40
event() { printf '\n{"name":"%s","cat":"%s","ph":"X","ts":%d,"dur":%d,"pid":0,"tid":%d,"args":{"step":%d%s}}' "$@"; }
{ printf '{"traceEvents":['
  event forward compute 0 1000 0 3 ',"micro":11'; printf ,
  event forward compute 2000 1000 0 4 ',"micro":12'; printf ,
  event backward compute 3000 2000 0 5 ',"micro":13'; printf ,
  event 'wait <b>' wait 2000 3000 1 5 ''
  printf '\n],"displayTimeUnit":"ms"}\n'; } > traced/trace.json
report traced one --out=traced.html || { cat report.log; fail "report of a run with a trace"; }
grep -q 'Steps 4 to 5 of the trace' traced.html || fail "the steps in the plot are not mentioned"
[ "$(grep -c 'title>forward, micro-batch' traced.html)" -eq 1 ] || fail "not one forward pass in the last steps"
grep -q '>13</text>' traced.html || fail "the number of a micro-batch is not in its box"
grep -q 'wait &lt;b&gt;: 3 ms from 2 ms' traced.html || fail "waiting is not drawn"
! grep -q 'wait <b>' traced.html || fail "the name of an event is not escaped"
! grep -q 'Schedule' both.html || fail "a schedule without a trace"
echo '{"traceEvents":[{"name":"x","args":{"step":7}}' > traced/trace.json
report traced --out=traced.html || fail "a damaged trace stops the report"
printf '{"traceEvents":[\n}} {"name":"x","args":{"step":7\n' > traced/trace.json
report traced --out=traced.html || fail "an event that ends before it begins stops the report"
pass "a trace"

make_run stale 40
! grep -q 'Staleness' both.html || fail "staleness of runs that have none"
figures() { printf '"staleness_mean":%s,"staleness_p50":%s,"staleness_p95":%s,"staleness_max":%s' "$@"; }
first="{\"rank\":0,\"updates\":40,$(figures 1.25 1 3 3),\"histogram\":[10,15,10,5]}"
last="{\"rank\":2,\"updates\":4,$(figures 2.5 1 5 5),\"histogram\":[0,2,0,1,0,1]}"
echo "{\"ranks\":[$first,$last]}" > stale/staleness.json
report stale one --out=stale.html || { cat report.log; fail "report of a run with staleness"; }
[ "$(grep -c '<h3>stale</h3>' stale.html)" -eq 1 ] || fail "not one section on staleness"
cells() { printf '<td class="n">%s</td>' "$@"; }
grep -q "<tr>$(cells 0 40 1.25 1 3 3)" stale.html ||
  fail "no row of rank 0's staleness"
grep -q "$(cells 2 4 2.50 1 5 5)" stale.html ||
  fail "no row of rank 2's staleness"
# 17 of 44 updates have staleness 1, the highest bar; 5 bars of all ranks, 4 and 3 of each
grep -q '<title>1: 17 updates, 38.6 %</title>' stale.html || fail "the histogram of all ranks is not their sum"
[ "$(grep -o 'class="bar"' stale.html | wc -l)" -eq 12 ] || fail "not 12 bars"
sed -i 's/"histogram":\[10,15,10,5\]/"histogram":["x",null,-3,{"a":1}]/; s/"staleness_mean":2.5/"staleness_mean":null/' \
  stale/staleness.json
report stale --out=odd.html || { cat report.log; fail "staleness that is no number"; }
! grep -qE 'nan|inf[^o]' <(grep -A30 'Staleness' odd.html) || fail "invalid values are in the page"
pass "staleness"

# an asynchronous run: evaluations come after training steps beyond theirs
make_run ahead 40
awk '/test_loss/ { held = held $0 "\n"; next } { print } END { printf "%s", held }' ahead/metrics.jsonl > ahead/m
mv ahead/m ahead/metrics.jsonl
report ahead one --out=ahead.html || { cat report.log; fail "evaluations after later steps"; }
! grep -q 'computed again' report.log || { cat report.log; fail "evaluations after later steps drop training steps"; }
pass "evaluations after later steps"

rm bad/summary.json
printf '{"step":41,"epo' >> bad/metrics.jsonl
report bad --out=killed.html || { cat report.log; fail "a killed run"; }
grep -q 'warning: bad/metrics.jsonl:45: the last line is incomplete' report.log ||
  { cat report.log; fail "no warning of the incomplete line"; }
grep -q 'not ended' killed.html || fail "a killed run is not marked as such"
pass "a killed run"

sed -i '9s/,"samples".*//' bad/metrics.jsonl
refused 1 'bad/metrics.jsonl:9: damaged line' bad
sed -i '9s/.*/{"step":9,"epoch":0,"samples":"x","wall_s":1}/' bad/metrics.jsonl
refused 1 'bad/metrics.jsonl:9: damaged line: no number under "samples"' bad
rm bad/metrics.jsonl
refused 1 'bad/metrics.jsonl: No such file' bad
refused 1 'nowhere/config.yaml: No such file' nowhere
refused 1 'no/such/folder.html: cannot be written' one --out=no/such/folder.html
refused 2 'did you mean --out?' one --uot=x.html
refused 2 'no run given'

report one 'two <i>&' long --svg=three.svg || { cat report.log; fail "picture"; }
[ ! -e report.html ] || fail "a picture was requested, and a page written"
[ "$(tail -n 1 three.svg)" = '</svg>' ] || fail "the picture is incomplete"
grep -q '>two &lt;i&gt;&amp;</text>' three.svg || fail "the name of a run is not in the picture"
for text in 'Loss: training (lines), test (dots)' 'Test accuracy' '>samples' '>80%</text>'; do
  grep -qF "$text" three.svg || fail "not in the picture: $text"
done
# 4 evaluations per run: points for losses, and points on the accuracy curves; one in the legend
[ "$(grep -o 'class="dot s2"' three.svg | wc -l)" -eq 9 ] || fail "not 8 dots of the third run"
! grep -qE 'var\(|href=|url\(' three.svg || fail "the picture needs other files"
grep -v accuracy one/metrics.jsonl > one/m; mv one/m one/metrics.jsonl
report one --svg=one.svg || { cat report.log; fail "picture of a run without evaluations"; }
! grep -q 'ccuracy' one.svg || fail "an accuracy is plotted that no run has"
grep -q 'Loss: training<' one.svg || fail "evaluations that no run has are in the heading"
pass "picture"

# Seeds: three that are done, one that failed, one that diverged. seed NAME SEED STATUS LOSS TIME ACCURACY TIME ACCURACY
seed() {
  local k
  mkdir -p "$1"
  printf 'model: m\nstrategy: {name: asgd}\nsimulate: {workers: %s}\nrun: {dir: "%s", seed: %d}\n' "${9:-2}" "$1" "$2" \
    > "$1/config.yaml"
  { printf '{"step":1,"epoch":1,"samples":1,"wall_s":9,"train_s":0.5,"virtual_s":7,"loss":2}\n'
    for k in 1 2; do
      printf '{"step":%d,"epoch":%d,"samples":%d,"wall_s":9,"train_s":%s,"virtual_s":8,' \
        $((10 * k)) $k $((100 * k)) "$5"
      printf '"test_loss":1,"test_accuracy":%s}\n' "$6"
      shift 2
    done; } > "$1/metrics.jsonl"
}
summary() { printf '{"status":"%s","final_train_loss":%s}\n' "$2" "$3" > "$1/summary.json"; }
for k in 1 2 3 4 5; do
  time=(0 1 1 2 1 1) end=(0 2 3 4 2 2) accuracy=(0 0.5 0.625 0.75 0 0) final=(0 0.75 0.875 0.625 0 0)
  seed "asgd-$k" $k - - "${time[k]}" "${accuracy[k]}" "${end[k]}" "${final[k]}"
  summary "asgd-$k" done 1
done
summary asgd-4 failed null
summary asgd-5 done 4.5 # more than twice the first loss
seed other 1 - - 1 0.25 8 0.5
sed -i 's/asgd/ssp/' other/config.yaml
rows() { tail -n +2 "$1" | sed 's/^"[^"]*",//' | tr -d '"'; } # without the panel
expect() { # expect FILE TEXT
  [ "$(rows "$1")" = "$2" ] || { rows "$1"; fail "$1: not $2"; }
}
report asgd-? --picture=accuracy --csv=a.csv || { cat report.log; fail "seeds"; }
expect a.csv 'asgd (3 of 5),100,,0.625,0.5,0.75
asgd (3 of 5),200,,0.75,0.625,0.875'
report asgd-? --picture=accuracy --x=updates --csv=a.csv || fail "updates"
[ "$(rows a.csv | cut -d, -f2 | tr '\n' ' ')" = '10 20 ' ] || fail "not over updates"
# over time the curves are piecewise linear, and keep their last value: at 3 they are 0.75, 0.875 and 0.6875
report asgd-? --picture=accuracy --x=time --csv=a.csv --svg=a.svg || fail "time"
rows a.csv | awk -F, -v all='2 0.75 0.75 0.75 3 0.770833333 0.6875 0.875 4 0.75 0.625 0.875' '
  BEGIN { split(all, e, " ") }
  { if ($2 != e[++n] ||
        ($4 - e[++n]) ^ 2 > 1e-16 || $5 != e[++n] || $6 != e[++n]) exit 1 } END { exit n != 12 }' ||
  { cat a.csv; fail "the mean over time"; }
grep -q 'virtual time (s)' a.svg && grep -q 'class="band s0"' a.svg && grep -q 'min to max of seeds' a.svg ||
  fail "no band over virtual time in the picture"
pass "seeds are a mean and a band; those that failed or diverged are counted"

report asgd-? other --out=seeds.html || { cat report.log; fail "page of seeds"; }
grep -q 'asgd (3 of 5)</span>' seeds.html || fail "no count of seeds in the legend"
[ "$(grep -c 'class="band s0"' seeds.html)" -ge 4 ] || fail "no bands in the page"
settings=$(sed -n '/Settings that differ/,/<\/table>/p' seeds.html | grep -o '<code>[^<]*</code>')
[ "$settings" = '<code>strategy.name</code>' ] || fail "settings that differ between series: $settings"
for outcome in failed diverged; do grep -q "<td>$outcome</td>" seeds.html || fail "no run is $outcome"; done
row=$(sed -n '/>Series</,/<\/table>/p' seeds.html | grep '<b>asgd</b>' | sed 's/<svg.*svg>//; s/<[^>]*>/|/g; s/||*/|/g')
case $row in '|asgd|3 of 5: 1 failed, 1 diverged|'*) ;; *) fail "the row of a series: $row" ;; esac
pass "page of seeds"

report asgd-? other --picture=target --target=0.75 --csv=t.csv --svg=t.svg || { cat report.log; fail "target"; }
expect t.csv 'mean,2.3333333333333335,,asgd: reached by 3 of 5,,
seed,2,,asgd: reached by 3 of 5,,
seed,3,,asgd: reached by 3 of 5,,
seed,2,,asgd: reached by 3 of 5,,
seed,inf,,asgd: reached by 3 of 5,,
seed,inf,,asgd: reached by 3 of 5,,
mean,inf,,other,,
seed,inf,,other,,'
[ "$(grep -c 'not reached' t.svg)" -eq 1 ] && [ "$(grep -c 'class="bar s0"' t.svg)" -eq 1 ] || fail "bars of the target"
report asgd-? --picture=target --target=0.75 --x=samples --csv=t.csv || fail "target over samples"
[ "$(rows t.csv | head -1 | cut -d, -f2 | cut -c1-6)" = 166.66 ] || fail "samples to the target"
refused 2 '--target=VALUE names it' asgd-1 --picture=target --svg=x.svg
# the page: mean and range of the three that reach it, at times 2, 3, 2, updates and samples 20, 20, 10 and 200, 200, 100
report asgd-? other --target=0.75 --out=t.html || fail "page with a target"
row=$(sed -n '/Time to target/,/<\/table>/p' t.html | grep '<td>asgd</td>' | sed 's/<[^>]*>/|/g; s/||*/|/g')
[ "$row" = '|asgd|3 of 5|2.33 s |(2.00 s to 3.00 s)|17 |(10 to 20)|167 |(100 to 200)|' ] || fail "time to target: $row"
sed -n '/Time to target/,/<\/table>/p' t.html | grep '<td>other</td>' | grep -q '0 of 1.*–.*–.*–' ||
  fail "a series that does not reach the target"
! grep -q 'Time to target' seeds.html || fail "a table of a target that is not given"
pass "time to target"

# one worker takes 4 s for 200 samples, two take 2, 3 and 4, four take 2
seed P1 1 - - 1 0.5 4 0.75 1
seed P4 1 - - 1 0.5 2 0.75 4
report P1 asgd-? P4 --picture=scaling --csv=s.csv --svg=s.svg || { cat report.log; fail "scaling"; }
rows s.csv | awk -F, -v all='1 1 1 1 2 1.33333333 1 2 4 2 2 2 1 1 1 1 2 0.66666667 0.5 1 4 0.5 0.5 0.5' '
  BEGIN { split(all, e, " ") }
  { for (i = 0; i < 4; i++) if (($(i ? 3 + i : 2) - e[++n]) ^ 2 > 1e-12) exit 1 } END { exit n != 24 }' ||
  { cat s.csv; fail "speed-up and efficiency"; }
refused 2 'several numbers of workers' P1 --picture=scaling --svg=x.svg
pass "scaling"

# shares 10, 17, 10, 6, 0, 1 of 44
echo "{\"ranks\":[$first,$last]}" > stale/staleness.json
report stale --picture=staleness --csv=s.csv || fail "picture of staleness"
rows s.csv | awk -F, 'BEGIN { split("10 17 10 6 0 1", e, " ") }
  { if ($2 != n || ($4 * 44 - e[++n]) ^ 2 > 1e-12) exit 1 }
  END { exit n != 6 }' || { cat s.csv; fail "shares of staleness"; }
refused 2 'no run has a staleness.json' one --picture=staleness --csv=x.csv
{ printf '{"traceEvents":['
  event compute compute 0 1000 0 3 ''; printf ,
  event exchange communication 1000 1000 0 3 ''; printf ,
  event compute compute 500 2000 1 4 ''
  printf '\n]}\n'; } > traced/trace.json
report traced --picture=gantt --window=0.0005:0.0015 --csv=g.csv --svg=g.svg || { cat report.log; fail "gantt"; }
expect g.csv 'computation,0.0005,0.001,rank 0,,
computation,0.0005,0.0015,rank 1,,
communication,0.001,0.0015,rank 0,,'
refused 2 'not FROM:TO' traced --picture=gantt --window=3 --svg=x.svg
refused 2 'no run has a trace.json' one --picture=gantt --svg=x.svg
pass "staleness and schedules as CSV"

# In grey the first six lines differ in dashes or by 12 of 100 in lightness (CIE L*); so do the boxes of schedules, 0, 4,
# 7 and 8, in lightness.
paths=$(for k in 1 2 3 4 5 6; do make_run "grey$k" 4$k > /dev/null; echo "grey$k"; done)
report $paths --picture=accuracy --svg=grey.svg || fail "six runs"
{ grep -o '\.s[0-8]{color:#[0-9a-f]*' grey.svg | sed 's/.*s\([0-8]\){color:#/color \1 /'
  grep -o 'class="line s[0-6]"[^>]*d="M[^h"]*h22' grey.svg | 
    sed 's/class="line s\([0-6]\)"/dash \1/; s/ d=.*//; s/stroke-dasharray=//'
} | awk '
  function part(hex, k) { return index("0123456789abcdef", substr(hex, k, 1)) - 1 }
  function linear(v) { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ^ 2.4 }
  $1 == "color" { h = $3
    if (length(h) == 3) { a = substr(h, 1, 1); b = substr(h, 2, 1); c = substr(h, 3, 1); h = a a b b c c }
    y = 0.2126 * linear(16 * part(h, 1) + part(h, 2)) + 0.7152 * linear(16 * part(h, 3) + part(h, 4))
    y += 0.0722 * linear(16 * part(h, 5) + part(h, 6))
    light[$2] = 116 * y ^ (1 / 3) - 16; colors++ }
  $1 == "dash" { n = $2; $1 = $2 = ""; dash[n] = $0; dashes++ }
  END { if (colors != 9 || dashes != 6) { print colors, dashes; exit 1 }
    for (a = 0; a < 6; a++) for (b = 0; b < a; b++) if (dash[a] == dash[b] && (light[a] - light[b]) ^ 2 < 144) {
      print a, b, light[a], light[b]; exit 1 }
    n = split("7 0 4 8", box, " ")
    for (a = 2; a <= n; a++) if (light[box[a]] - light[box[a - 1]] < 12) {
      print "boxes", light[box[a]], light[box[a - 1]]; exit 1 } }' || fail "lines or boxes that are equal in grey"
pass "lines can be told apart in grey"

# More than six are small panels with the same axes, each over the first one in grey.
make_run grey7 47
report $paths grey7 --picture=accuracy --svg=grid.svg --csv=grid.csv --out=grid.html || fail "seven runs"
for k in 1 2 3 4 5 6 7; do grep -q ">grey$k</text>" grid.svg || fail "no panel of grey$k"; done
[ "$(grep -c 'class="behind" d="M' grid.svg)" -eq 7 ] || fail "not six panels, and a legend, with the first run in grey"
[ "$(grep -o 'class="line[^>]*' grid.svg | grep -c 'class="line s0"')" -eq 7 ] || fail "the lines of panels differ"
[ "$(rows grid.csv | cut -d, -f1 | sort -u | wc -l)" -eq 7 ] || fail "panels as CSV"
grep -q 'Grey: grey1' grid.html || fail "the page does not say what is grey"
pass "small panels"

# A run whose loss was not finite has diverged; one that failed otherwise has not, nor one that computed nothing.
make_run nan 40
reason="step 9: the loss is nan; the weights are those of the step before (a lower optim.lr, optim.clip or optim.warmup may help)"
printf '{"status":"failed","reason":"%s","final_train_loss":2}\n' "$reason" > nan/summary.json
make_run full 40
printf '{"status":"failed","reason":"No space left on device","final_train_loss":2}\n' > full/summary.json
make_run times 40
sed -i 's/"loss":[^,]*/"loss":null/; s/"test_loss":[^,]*/"test_loss":null/' times/metrics.jsonl
printf '{"status":"done","final_train_loss":null,"test_loss":null}\n' > times/summary.json
report nan full times --out=status.html || { cat report.log; fail "runs that failed"; }
[ "$(grep -o '<td>diverged</td>\|<td>failed</td>\|<td>done</td>' status.html | tr '\n' ' ')" = \
  '<td>diverged</td> <td>failed</td> <td>done</td> ' ] || fail "the outcomes of runs that failed"
pass "divergence"

# The time of a virtual run is its virtual time, and said to be.
printf '{"status":"done","wall_s":9,"virtual_s":0.25}\n' > other/summary.json
report other one --out=virtual.html || fail "page of a virtual run"
grep -q '>0.25 s <span class="soft">virtual</span></td>' virtual.html || fail "no virtual time in the table"
[ "$(grep -c '>virtual</span>' virtual.html)" -eq 1 ] || fail "a real time is said to be virtual"
pass "virtual times in the table"

# A sweep's final runs; one failed before it began.
mkdir -p sweep/runs
for k in 1 2; do cp -r "asgd-$k" "sweep/runs/optim.lr=0.1,run.seed=$k"; done
cat > sweep/runs.csv << 'EOF'
phase,optim.lr,run.seed,status,run,validation_accuracy,validation_loss,test_accuracy,test_loss
tune,0.1,101,done,"optim.lr=0.1,run.seed=101",,,,
final,0.1,1,done,"optim.lr=0.1,run.seed=1",,,,
final,0.1,2,done,"optim.lr=0.1,run.seed=2",,,,
final,0.1,3,failed,"optim.lr=0.1,run.seed=3",,,,
EOF
report sweep --picture=accuracy --csv=a.csv || { cat report.log; fail "a sweep"; }
expect a.csv 'lr=0.1 (2 of 3),100,,0.5625,0.5,0.625
lr=0.1 (2 of 3),200,,0.8125,0.75,0.875'
report sweep --out=sweep.html || fail "page of a sweep"
! grep -q 'Time to target' sweep.html || fail "a target that the sweep does not have"
echo '{"options":[],"tune_seeds":"101","target":0.75,"baseline":"optim.lr=0.1"}' > sweep/sweep.json
report sweep --out=sweep.html || fail "page of a sweep with a target"
grep -q 'accuracy of 75 % or better' sweep.html || fail "the target of the sweep is not that of its page"
sed -i '1s/,run,/,path,/' sweep/runs.csv
refused 1 'sweep/runs.csv:1: no "run"' sweep
pass "a sweep"

if grep -q 'define HAVE_RSVG' "${top_builddir:-$top_srcdir/build}/config.h"; then
  report long --pdf=long.pdf --png=long.png || { cat report.log; fail "PDF and PNG"; }
  [ "$(head -c 5 long.pdf)" = '%PDF-' ] && [ "$(wc -c < long.pdf)" -gt 5000 ] || fail "not a PDF"
  [ "$(head -c 4 long.png | tail -c 3)" = PNG ] && [ "$(wc -c < long.png)" -gt 20000 ] || fail "not a PNG"
  refused 1 'no/such.png: cannot be written' long --png=no/such.png
  pass "PDF and PNG"
else
  refused 2 'built without librsvg' long --png=long.png
  [ ! -e long.png ] || fail "an empty picture is left"
fi
finish
