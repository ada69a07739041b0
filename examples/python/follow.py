#!/usr/bin/env python3
"""Follow the events of a merchant: a till without a webhook learns of each end and each refund. It needs Python 3.9 and merchant.py.

    follow.py FILE   act on each event; FILE keeps the position for the next start

Environment: API_URL and API_KEY, whose mode says which events.
"""

import http.client
import json
import os
import sys
import time
import urllib.parse

import merchant  # its handle() is the same for webhooks: each event has one id, whichever way it comes

WAIT = 25  # seconds for which the answer is held until there is an event
merchant.TIMEOUT += WAIT


def load(file):
    try:
        with open(file) as text:
            return text.read()
    except FileNotFoundError:
        return ""


def save(file, cursor):
    """Keep the position. A program that is killed while it writes leaves the old one."""
    with open(file + ".new", "w") as text:
        text.write(cursor)
        text.flush()
        os.fsync(text.fileno())
    os.replace(file + ".new", file)


def read(cursor):
    """Return the next events, or None if there is no answer now."""
    query = {"wait": WAIT} | ({"after": cursor} if cursor else {})
    try:
        status, headers, text = merchant.once(
            "GET", "/api/v1/events?" + urllib.parse.urlencode(query), None, {"Authorization": "Bearer " + os.environ["API_KEY"]}
        )
        answer = json.loads(text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"no answer: {error}", file=sys.stderr, flush=True)
        return None
    if status == 200:
        return answer
    problem = f"{status} {answer.get('error')}, X-Request-Id {headers.get('X-Request-Id')}"
    if status in (409, 410):
        # 410: older events are deleted by age. 409: the service's database lost its latest writes, and the answer has the last position
        # that is left. Either way, compare your orders with GET /api/v1/sessions?endedFrom=…&endedTo=…
        print("events are lost:", problem, file=sys.stderr, flush=True)
        return {"items": [], "cursor": answer.get("cursor", "")}
    if status != 429 and status < 500:
        sys.exit("refused: " + problem)
    print(problem, file=sys.stderr, flush=True)
    return None


def follow(file):
    cursor = load(file)
    while True:
        answer = read(cursor)
        if answer is None:
            time.sleep(5)
            continue
        for item in answer["items"]:
            merchant.handle(item["id"], item["event"])
            save(file, item["cursor"])  # only now: an event that was not handled comes again
        cursor = answer["cursor"]
        save(file, cursor)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        follow(sys.argv[1])
    except KeyboardInterrupt:
        pass
