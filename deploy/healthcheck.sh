#!/bin/bash
# Exit 0 when the process in this container answers ready on the probe port given as argument.
# No Python: an interpreter every few seconds per container would cost more than the cluster. The
# certificate is shown because the process may have been told to ask everybody for one.
set -euo pipefail
printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' \
  | timeout 2 openssl s_client -quiet -verify_return_error -connect "127.0.0.1:$1" \
      -CAfile "$NEXTGEN_TLS_CA_FILE" -cert "$NEXTGEN_TLS_CERT_FILE" -key "$NEXTGEN_TLS_KEY_FILE" 2>/dev/null \
  | grep --quiet --max-count=1 '^HTTP/1.[01] 200 '
