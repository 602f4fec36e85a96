#!/bin/bash
# Files of a run are its user's alone, or run.group's; the audit log has a line for each event, and every change shows.
. "$(dirname "$0")/lib.sh"
scratch
openblas_only
umask 022
digits 600 60
cat > config.yaml << 'END'
model: linear 10
data: {file: digits.h5}
train: {steps: 6, batch: 48}
run: {checkpoint_every: 3, trace: steps}
log: {quiet: yes}
END
# modes RUN: the different modes of what is in it
modes() { find "$1" ! -type l -printf '%y%m\n' | sort -u | tr '\n' ' '; }

run 2 private
[ "$(modes private)" = "d700 f600 " ] || { ls -lR private; fail "private: $(modes private)"; }
[ -e private/trace.json ] && [ -e private/checkpoints/step-00000006.h5 ] || fail "private: files are missing"
[ "$(stat -c %a digits.h5)" = 644 ] || fail "digits.h5 has other modes than those of the umask"
pass "a run's files are 0600, its directories 0700; a data set's are the umask's"
run 2 shared --run.group="$(id -gn)"
[ "$(modes shared)" = "d2750 f640 " ] || { ls -lR shared; fail "shared: $(modes shared)"; }
(umask 077 && run 2 strict --run.group="$(id -gn)") || exit 1
[ "$(modes strict)" = "d2700 f600 " ] || { ls -lR strict; fail "strict: $(modes strict)"; }
pass "with run.group 0640 and 0750; a stricter umask is kept"
other=$(id -Gn | tr ' ' '\n' | grep -vxF "$(id -gn)" | head -n 1)
[ "$(id -u)" != 0 ] || other=daemon
if [ -n "$other" ]; then
  run 2 other --run.group="$other"
  [ "$(find other -printf '%g\n' | sort -u)" = "$other" ] || { ls -lR other; fail "other: not of group $other"; }
  pass "all files belong to run.group"
fi
try 2 unknown --run.group=no_such_group && fail "an unknown group is taken"
grep -q 'run.group: there is no group "no_such_group"' unknown.log || fail "unknown: $(cat unknown.log)"
pass "an unknown group is an error"

# audit RUN STATUS TEXT: the command's status and message
audit() {
  "$TRIREME" status "$1" --audit > audit.log 2>&1
  [ $? = "$2" ] && grep -qF -- "$3" audit.log || { cat audit.log; fail "audit of $1: not status $2, $3"; }
  pass "audit of $1: $3"
}
log=private/audit.jsonl
[ "$(grep -o '"event":"[a-z]*"' $log | tr -d '\n')" = \
  '"event":"start""event":"checkpoint""event":"checkpoint""event":"end"' ] || { cat $log; fail "other events"; }
for text in "\"user\":\"$(id -un)\"" '"command":"' '--run.dir=private' '"file":"step-00000003.h5"' '"status":"done"' \
  "\"weights_sha256\":\"$(sha private)\"" "$(printf '"before":"%064d"' 0)" '"data":"' '"config":"'; do
  grep -qF -- "$text" $log || { cat $log; fail "audit.jsonl does not have $text"; }
done
audit private 0 "4 lines verified, last line $(tail -n 1 $log | sha256sum | cut -d ' ' -f 1)"
printf '{"event":"sta' >> $log # of a process that was killed
run 2 private --run.resume=auto --train.steps=9
audit private 0 "7 lines verified"
run 2 private --run.overwrite=yes
audit private 0 "11 lines verified"

for n in 1 4 10; do # changed
  cp $log kept
  sed -i "${n}s/\"step\":/\"step\":1/" $log
  audit private 1 "line $((n + 1)) is not the one that was written"
  cp kept $log
done
sed -i 3d $log # removed
audit private 1 "line 3 is not the one that was written"
cp kept $log
sed -i '5{h;G}' $log # inserted
audit private 1 "line 6 is not the one that was written"
rm $log
audit private 1 "audit.jsonl: cannot be read: No such file or directory"
finish
