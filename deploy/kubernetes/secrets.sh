#!/bin/bash
# Prints the secrets of a cluster on Kubernetes, with certificates and keys from DIRECTORY: makes
# what is missing there, and makes anew what ends within 30 days. Run it again at any time:
#
#   deploy/kubernetes/secrets.sh DIRECTORY | kubectl apply -f -
#
# DIRECTORY has the keys that sign certificates and tokens. Keep it where nodes are not, and safe.
# Afterwards it has the operator's files, too: operator.cert.pem, operator.key.pem, operator.token.
# NAMESPACE, SHARD_NODES, DISCOVERY_NODES, BROKERS: as in the manifests, if they were changed.
set -euo pipefail
umask 077
directory=${1:?usage: secrets.sh DIRECTORY}
namespace=${NAMESPACE:-pulsar-nextgen}

declare -A count=(
  [cluster-manager]=3 [shard-node]=${SHARD_NODES:-3} [discovery]=${DISCOVERY_NODES:-2} [broker]=${BROKERS:-3}
)
wanted=(operator/operator)
for role in "${!count[@]}"; do
  for ((number = 0; number < count[$role]; number++)); do
    pod=$role-$number
    hosts=$pod.$role,$pod.$role.$namespace.svc,$pod.$role.$namespace.svc.cluster.local
    # Clients in the cluster reach discovery by the name of its service.
    [[ $role != discovery ]] || hosts+=,pulsar.$namespace.svc,pulsar.$namespace.svc.cluster.local,localhost
    wanted+=("$role/$pod=$hosts")
  done
done
nextgen certs provision --cluster-id kubernetes --directory "$directory" "${wanted[@]}" >&2

private=$directory/token.private.der public=$directory/token.public.der token=$directory/operator.token
# The public key is written last, so where it is the pair is whole.
if [[ ! -e $public ]]; then
  nextgen tokens create-key-pair -a ES256 --output-private-key "$private" --output-public-key "$public" >&2
  rm -f "$token"
fi
if [[ ! -s $token || -n $(find "$token" -mtime +335) ]]; then
  nextgen tokens create --subject admin --private-key "$private" --expiry-time 365d >"$token.draft"
  mv "$token.draft" "$token"
fi

entry() {
  printf '  %s: %s\n' "$1" "$(base64 <"$2" | tr -d '\n')"
}
for role in cluster-manager shard-node discovery broker; do
  printf -- '---\napiVersion: v1\nkind: Secret\ntype: Opaque\nmetadata:\n  name: nextgen-%s\n  namespace: %s\ndata:\n' \
    "$role" "$namespace"
  entry ca.cert.pem "$directory/ca.cert.pem"
  for ((number = 0; number < count[$role]; number++)); do
    entry "$role-$number.cert.pem" "$directory/$role-$number.cert.pem"
    entry "$role-$number.key.pem" "$directory/$role-$number.key.pem"
  done
  if [[ $role == discovery || $role == broker ]]; then entry token.pub "$public"; fi
done
