#!/bin/bash
# Certificates and tokens of the cluster in the compose file: makes what is missing, and makes anew
# what ends within 30 days. Everything else stays, so it runs at each start and whenever it is asked.
#
#   /authority        keys that sign certificates and tokens; mounted here only
#   /nodes/NAME       what NAME needs: ca.crt, tls.crt, tls.key; who checks tokens, token.pub; the
#                     operator, token
#   /nodes/trust      ca.crt alone, for whoever only connects
set -euo pipefail
umask 022

nextgen certs provision --cluster-id "$NEXTGEN_CLUSTER_ID" --directory /authority --deliver-to /nodes "$@"

private=/authority/token.private.der public=/authority/token.public.der token=/nodes/operator/token
# The public key is written last, so where it is the pair is whole.
if [[ ! -e $public ]]; then
  nextgen tokens create-key-pair -a ES256 --output-private-key "$private" --output-public-key "$public"
  rm --force "$token"
fi
if [[ ! -s $token || -n $(find "$token" -mtime +335) ]]; then
  (umask 077; nextgen tokens create --subject admin --private-key "file://$private" --expiry-time 365d >"$token.draft")
  mv "$token.draft" "$token"
  echo "$token: who shows it is admin, for a year"
fi

deliver() {
  cmp --silent "$1" "$2" || { install --mode="$3" "$1" "$2.draft" && mv "$2.draft" "$2"; }
}
for node in /nodes/discovery-* /nodes/broker-*; do
  deliver "$public" "$node/token.pub" 644
done
deliver /authority/ca.cert.pem /nodes/trust/ca.crt 644
