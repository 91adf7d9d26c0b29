#!/usr/bin/env bash
# The Binder's user of the ledger's server, as a manifest of a secret on standard output:
#   deploy/make-ledger-user.sh | kubectl apply -f -
# It may do what the ledger does, on the ledger's keys; nobody else may do anything. The server gets the rules with the
# password's hash (users.acl), the Binder the password. The Binder asks for these rights when it starts, and refuses
# more or fewer.
set -euo pipefail
namespace=${1:-stretto}
password=${2:-$(openssl rand -hex 24)}
hash=$(printf %s "$password" | openssl dgst -sha256 -r | cut -d' ' -f1)
cat <<MANIFEST
apiVersion: v1
kind: Secret
metadata:
  name: stretto-valkey
  namespace: $namespace
stringData:
  password: "$password"
  users.acl: |
    user default off resetpass resetkeys resetchannels -@all
    user stretto-binder on #$hash resetchannels ~{stretto:*}:* -@all +evalsha +script|load +info +hget +hmget +hset +hdel +hlen +hscan +unlink +acl|whoami +acl|dryrun
MANIFEST
