/** Services for sandboxes that have nothing but busybox. */

/** For `nc -ll -e`: answers a WebSocket's handshake, then gives one text frame of at most 125 bytes back. */
export const webSocketScript = `#!/bin/sh
while IFS= read -r line; do
  line=$(printf %s "$line" | tr -d '\\r')
  [ -z "$line" ] && break
  case $line in [Ss]ec-[Ww]eb[Ss]ocket-[Kk]ey:*) key=\${line#*: };; esac
done
accept=$(printf %s "\${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11" | sha1sum | cut -c1-40 | xxd -r -p | base64)
printf 'HTTP/1.1 101 Switching Protocols\\r\\nupgrade: websocket\\r\\nconnection: Upgrade\\r\\nsec-websocket-accept: %s\\r\\n\\r\\n' "$accept"
set -- $(dd bs=1 count=6 2>/dev/null | od -An -tu1)
length=$(($2 - 128))
keys="$3 $4 $5 $6"
printf "\\\\$(printf %o 129)\\\\$(printf %o $length)"
at=0
for byte in $(dd bs=1 count=$length 2>/dev/null | od -v -An -tu1); do
  set -- $keys
  shift $((at % 4))
  printf "\\\\$(printf %o $((byte ^ $1)))"
  at=$((at + 1))
done
cat > /dev/null
`;
