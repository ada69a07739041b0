#!/usr/bin/env bash
# A merchant's till in shell. It needs bash, curl 7.71 or later, and openssl.
#
#   merchant.sh charge ORDER AMOUNT_CENTS            charge an order and wait for its end; exit 0 only if it is paid
#   merchant.sh refund SESSION RETURN AMOUNT_CENTS   ask for a refund of a paid session; exit 0 unless it is rejected
#   merchant.sh verify HEADERS BODY                  verify a webhook that is in two files; print its id
#
# Environment: API_URL and API_KEY, or WEBHOOK_SECRET; TIMEOUT of one request in seconds (default 10).
set -euo pipefail

fail() { echo "$*" >&2; exit 1; }
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }

answer=$(mktemp -d)
trap 'rm -rf "$answer"' EXIT
touch "$answer/headers" "$answer/body"

# call sends one request. It leaves the answer in the files headers and body, and ends the program if that is an error.
#
# After a lost connection, a timeout, 429 or 5xx, curl sends the same request again: after Retry-After, or after 1, 2, 4 … seconds.
# The API key goes through a pipe: everybody on the machine can see the arguments of curl.
call() {
  local status
  status=$(curl -sS --max-time "${TIMEOUT:-10}" --retry 100 --retry-all-errors --retry-max-time 180 \
    -H @<(printf 'Authorization: Bearer %s\n' "$API_KEY") -D "$answer/headers" -o "$answer/body" -w '%{http_code}' "$@") || status=000
  case $status in
    2??) ;;
    000 | 429 | 5??) fail "gave up: $status $(<"$answer/body"), $(request_id). Run the same command again: it charges and refunds nothing twice" ;;
    *) fail "refused: $status $(<"$answer/body"), $(request_id)" ;;
  esac
}

# header prints a header of the last answer, or of the request in another file.
header() {
  awk -v name="$1" '{ sub(/\r$/, "") }
    tolower(substr($0, 1, length(name) + 1)) == name ":" { value = substr($0, length(name) + 2); sub(/^ */, "", value) }
    END { print value }' "${2:-$answer/headers}"
}

# request_id is what the platform team needs to find the request.
request_id() { echo "X-Request-Id $(header x-request-id)"; }

# field prints a text field of the last answer. With jq: jq -r ".$1".
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$answer/body"; }

charge() {
  local order=$1 amount=$2 session status
  [[ $order =~ ^[A-Za-z0-9._-]{1,200}$ && $amount =~ ^[1-9][0-9]{0,8}$ ]] || usage
  # The key is of the order, not of the request: whatever is sent again, also by a restarted till, finds the session that exists
  # and charges nothing twice. To charge again after a failed payment, use another key, such as order-1001-2.
  call "${API_URL%/}/api/v1/sessions" -H "Idempotency-Key: order-$order" -H "Content-Type: application/json" \
    -d "{\"orderRef\": \"$order\", \"amountCents\": $amount}"
  session=$(field sessionId)
  if [[ $(header idempotency-mismatch) == true ]]; then
    fail "mismatch: order $order was charged before with another amount, as session $session"
  fi
  echo "session $session"
  if [[ $(header idempotent-replayed) == true ]]; then echo "replay: an earlier request created it"; fi
  echo "payer's page ${API_URL%/}/pay/$session"
  while status=$(field status) && [[ $status == PENDING ]]; do
    sleep 2
    call "${API_URL%/}/api/v1/sessions/$session"
  done
  echo "status $status"
  [[ $status == COMPLETED ]]
}

refund() {
  local session=$1 return=$2 amount=$3
  [[ $session =~ ^ps_[0-9A-Za-z]+$ && $return =~ ^[A-Za-z0-9._-]{1,200}$ && $amount =~ ^[1-9][0-9]{0,8}$ ]] || usage
  # The key is of the return: whatever is sent again asks for the same refund, and gets its status of now.
  call "${API_URL%/}/api/v1/sessions/$session/refunds" -H "Idempotency-Key: return-$return" -H "Content-Type: application/json" \
    -d "{\"amountCents\": $amount}"
  echo "refund $(field refundId)"
  echo "status $(field status)" # REQUESTED until the payment network has paid it back, which may take days: a webhook tells
  [[ $(field status) != REJECTED ]]
}

# hmac prints the base64 of the HMAC-SHA256 of its input. It is made of two digests, because openssl takes the key of an HMAC only
# as an argument, which everybody on the machine can see.
hmac() {
  local key inner="" outer="" i
  key=$(printf %s "${WEBHOOK_SECRET#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \n')
  [[ ${#key} -ge 48 && ${#key} -le 128 ]] || fail "WEBHOOK_SECRET is not whsec_ and the base64 of 24 to 64 bytes"
  while ((${#key} < 128)); do key+=00; done
  for ((i = 0; i < 128; i += 2)); do
    printf -v inner '%s\\x%02x' "$inner" $((0x${key:i:2} ^ 0x36))
    printf -v outer '%s\\x%02x' "$outer" $((0x${key:i:2} ^ 0x5c))
  done
  { printf %b "$outer"; { printf %b "$inner"; cat; } | openssl dgst -sha256 -binary; } | openssl dgst -sha256 -binary | openssl base64 -A
}

verify() {
  local id timestamp age expected signature
  local -a signatures
  id=$(header webhook-id "$1") timestamp=$(header webhook-timestamp "$1")
  read -ra signatures <<<"$(header webhook-signature "$1")"
  # An intercepted event cannot be sent again later.
  [[ $timestamp =~ ^[1-9][0-9]{0,11}$ ]] || fail "refused: no timestamp"
  age=$(($(date +%s) - timestamp))
  ((age > -300 && age < 300)) || fail "refused: the timestamp is $age seconds old"
  # The signature is of the bytes that arrived. JSON that was parsed and written again has other bytes.
  expected=v1,$({ printf '%s.%s.' "$id" "$timestamp"; cat "$2"; } | hmac)
  for signature in "${signatures[@]}"; do # two, while the secret is rotated
    # The shell compares until the first difference. Of the HMACs of both, that time reveals nothing.
    if [[ $(printf %s "$signature" | hmac) == "$(printf %s "$expected" | hmac)" ]]; then
      echo "$id" # handle each id once: events arrive at least once
      return
    fi
  done
  fail "refused: no valid signature"
}

case $#-${1:-} in
  3-charge | 4-refund | 3-verify) "$@" ;;
  *) usage ;;
esac
