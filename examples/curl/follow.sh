#!/usr/bin/env bash
# Follow the events of a merchant in shell: a till without a webhook learns of each end and each refund. It needs bash and curl 7.71.
#
#   follow.sh FILE   print what to do about each event; FILE keeps the position for the next start
#
# Environment: API_URL and API_KEY.
set -euo pipefail

[[ $# == 1 ]] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
file=$1
answer=$(mktemp -d)
trap 'rm -rf "$answer"' EXIT

# field prints the last text field of this name in a JSON text of one line. A quote within a text is \", so no text can look like a field.
field() { sed -n "s/.*\"$1\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" <<<"$2"; }

# save keeps the position. A program that is killed while it writes leaves the old one.
save() { printf %s "$1" >"$file.new" && mv "$file.new" "$file"; }

# handle acts on one event. It may come twice: after a crash, and after a failover of the service's database. So act once for each id.
handle() {
  local id type order
  id=$(field id "${1%%,*}") type=$(field type "$1") order=$(field orderRef "$1")
  case $type in
    session.completed) echo "deliver order $order" ;;
    session.failed | session.expired | session.cancelled) echo "cancel order $order" ;;
    session.payment_refunded) echo "note that money of payment $(field paymentRef "$1") went back" ;;
    session.late_payment | session.payment_mismatch) echo "note the refund of payment $(field paymentRef "$1")" ;;
    *) echo "ignored $id $type" >&2 ;;
  esac
}

while :; do
  cursor=$(cat "$file" 2>/dev/null || true)
  # The answer is held until there is an event, for 25 seconds. The API key goes through a pipe: everybody can see the arguments of curl.
  status=$(curl -sS --max-time 40 -G "${API_URL%/}/api/v1/events" -d wait=25 ${cursor:+--data-urlencode "after=$cursor"} \
    -H @<(printf 'Authorization: Bearer %s\n' "$API_KEY") -o "$answer/body" -w '%{http_code}') || status=000
  body=$(cat "$answer/body" 2>/dev/null || true)
  case $status in
    200) ;;
    409 | 410)
      # 410: older events are deleted by age. 409: the service's database lost its latest writes, and the answer has the last position that
      # is left. Either way, compare your orders with GET /api/v1/sessions?endedFrom=…&endedTo=…
      echo "events are lost: $body" >&2
      save "$(field cursor "$body")"
      continue
      ;;
    000 | 429 | 5??) echo "$status $body; next attempt in 5 s" >&2; sleep 5; continue ;;
    *) echo "refused: $status $body" >&2; exit 1 ;;
  esac
  while read -r item; do
    handle "$item"
    save "$(field cursor "${item%%,\"event\":*}")" # only now: an event that was not handled comes again
  done < <(sed 's/{"id":"evt_/\n&/g' <<<"$body" | grep '^{"id"' || true)
  save "$(field cursor "$body")"
done
