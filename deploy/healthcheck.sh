#!/bin/bash
# Exit 0 when the process in this container answers ready on the probe port given as argument.
# Plain bash: a Python interpreter every few seconds per container would cost more than the cluster.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r status <&3
[[ $status == *" 200 "* ]]
