#!/usr/bin/env bash
# An authority and a certificate for each process, as manifests of secrets on standard output:
#   deploy/make-certificates.sh | kubectl apply -f -
# Good for a year. With cert-manager, let it issue the same secrets instead, with these DNS names: the first, stretto-ROLE
# alone, is what a process may do by it; the others are where it is dialled. That of stretto-metrics is for your monitoring.
set -euo pipefail
namespace=${1:-stretto}
days=${2:-365}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

new_key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

new_key ca.key
openssl req -x509 -new -key ca.key -subj "/CN=stretto-authority" -days "$days" -out ca.crt
for role in dispatcher binder shard valkey metrics; do
  name=stretto-$role
  new_key "$role.key"
  openssl req -new -key "$role.key" -subj "/CN=$name" -out "$role.csr"
  printf 'subjectAltName=DNS:%s,DNS:%s.%s.svc,DNS:%s.%s.svc.cluster.local\nextendedKeyUsage=serverAuth,clientAuth\n' \
    "$name" "$name" "$namespace" "$name" "$namespace" > "$role.ext"
  openssl x509 -req -in "$role.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" \
    -extfile "$role.ext" -out "$role.crt" 2>/dev/null
  cat <<MANIFEST
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata:
  name: $name-tls
  namespace: $namespace
data:
  ca.crt: $(base64 < ca.crt | tr -d '\n')
  tls.crt: $(base64 < "$role.crt" | tr -d '\n')
  tls.key: $(base64 < "$role.key" | tr -d '\n')
MANIFEST
done
