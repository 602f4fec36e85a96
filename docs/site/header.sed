# A header as doxygen reads it (sed -E): its plain comments document what follows them, or what they follow on a line.
# The first one is the file's; one that begins with -- and has a line to itself is a heading.
1s,^/\*,/** @file\n *,
s,^ */\* -- [^:;]*\*/$,,
s,^( *)/\*( --)?( |$),\1/**\3,
s,([^ ] *)/\* ,\1/**< ,
