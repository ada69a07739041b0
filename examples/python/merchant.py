#!/usr/bin/env python3
"""A merchant's till and webhook receiver. It needs Python 3.9 or later and no packages.

    merchant.py charge ORDER AMOUNT_CENTS            charge an order and wait for its end; exit 0 only if it is paid
    merchant.py refund SESSION RETURN AMOUNT_CENTS   ask for a refund of a paid session; exit 0 unless it is rejected
    merchant.py listen PORT                          receive webhooks on 127.0.0.1

Environment: API_URL and API_KEY, or WEBHOOK_SECRET; TIMEOUT in seconds (default 10); LIVEMODE=false receives from test mode.
"""

import base64
import hashlib
import hmac
import http.client
import http.server
import itertools
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request

API_URL = os.environ.get("API_URL", "").rstrip("/")
TIMEOUT = float(os.environ.get("TIMEOUT", "10"))
PATIENCE = 180  # seconds of retries: keep it far below the 24 hours that an Idempotency-Key is kept


def once(method, path, body, headers):
    """Send a request and return status, headers and body of whatever answer there is."""
    request = urllib.request.Request(API_URL + path, body, headers, method=method)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        response = error  # a status of 400 or more is an answer too
    with response:
        return response.status, response.headers, response.read()


def send(method, path, body=None, **headers):
    """Send a request until it is answered, and return the decoded answer and its headers."""
    headers |= {"Authorization": "Bearer " + os.environ["API_KEY"], "Content-Type": "application/json"}
    give_up = time.monotonic() + PATIENCE
    for attempt in itertools.count():
        pause = 2**attempt
        try:
            status, answered, text = once(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            # A lost connection, a timeout or half an answer: nobody knows whether the session exists.
            problem = f"no answer: {error}"
        else:
            if 200 <= status < 300:
                return json.loads(text), answered
            problem = f"{status} {text.decode(errors='replace').strip()}, X-Request-Id {answered.get('X-Request-Id')}"
            if status != 429 and status < 500:
                sys.exit("refused: " + problem)
            if answered.get("Retry-After", "").isdecimal():
                pause = int(answered["Retry-After"])
        if time.monotonic() + pause > give_up:
            sys.exit(f"gave up: {problem}. Run the same command again: it charges and refunds nothing twice")
        print(f"{problem}; next attempt in {pause} s", file=sys.stderr, flush=True)
        time.sleep(pause)


def charge(order, amount_cents):
    # The key is of the order, not of the request: whatever is sent again, also by a restarted till, finds the session that
    # exists and charges nothing twice. To charge again after a failed payment, use another key, such as order-1001-2.
    body = json.dumps({"orderRef": order, "amountCents": int(amount_cents)}).encode()
    session, headers = send("POST", "/api/v1/sessions", body, **{"Idempotency-Key": "order-" + order})
    path = "/api/v1/sessions/" + session["sessionId"]
    if headers.get("Idempotency-Mismatch") == "true":
        sys.exit(f"mismatch: order {order} was charged before with another amount, as session {session['sessionId']}")
    print("session", session["sessionId"])
    if session["idempotent"]:
        print("replay: an earlier request created it")
    print(f"payer's page {API_URL}/pay/{session['sessionId']}", flush=True)
    while session["status"] == "PENDING":
        time.sleep(2)
        session, _ = send("GET", path)
    print("status", session["status"])
    return 0 if session["status"] == "COMPLETED" else 1


def refund(session_id, name, amount_cents):
    # The key is of the return: whatever is sent again asks for the same refund, and gets its status of now.
    body = json.dumps({"amountCents": int(amount_cents)}).encode()
    answer, _ = send("POST", f"/api/v1/sessions/{session_id}/refunds", body, **{"Idempotency-Key": "return-" + name})
    print("refund", answer["refundId"])
    print("status", answer["status"])  # REQUESTED until the payment network has paid it back, which may take days: a webhook tells
    return 1 if answer["status"] == "REJECTED" else 0


def verified(secret, headers, body):
    """Say whether a webhook is genuine and recent. body is the raw body: JSON that was parsed and written again has other bytes."""
    event_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) >= 300:
        return False  # so that nobody can send an intercepted event again later
    mac = hmac.new(secret, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(mac)
    # There are two signatures while the secret is rotated. compare_digest takes as long for a wrong one as for the right one.
    signatures = headers.get("webhook-signature", "").split(" ")
    return any([hmac.compare_digest(expected, signature.encode()) for signature in signatures])


lock = threading.Lock()  # your transaction
handled = set()  # by webhook-id: a table with a unique index
statuses = {}  # sequence and status by session id: a table, which also says whose order it is


def handle(event_id, event):
    """Handle an event in one transaction. If it does not fail, the event counts as delivered."""
    data = event["data"]
    with lock:
        if event_id in handled:
            return  # events arrive at least once
        handled.add(event_id)
        if "payment" in data:
            print("note the refund of payment", data["paymentRef"], flush=True)
        sequence, status = statuses.get(data.get("sessionId"), (0, None))
        if data.get("sequence", 0) <= sequence:
            return  # a later event is stored already, or this is no event of a session
        statuses[data["sessionId"]] = data["sequence"], data["status"]
        if data["status"] == status:
            return
        if data["status"] == "COMPLETED":
            print("deliver order", data.get("orderRef"), flush=True)
        elif data["status"] in ("FAILED", "EXPIRED", "CANCELLED"):
            print("cancel order", data.get("orderRef"), flush=True)


def read_body(headers, stream):
    """The body of a request, at most 64 KiB. Some proxies send it in chunks, without a Content-Length."""
    if headers.get("Transfer-Encoding", "").lower() != "chunked":
        return stream.read(min(abs(int(headers.get("Content-Length", 0))), 64 << 10))
    body = b""
    while 0 < (size := int(stream.readline(64).partition(b";")[0], 16)) <= (64 << 10) - len(body):
        body += stream.read(size)
        stream.readline(64)  # the end of the chunk
    return body


def listen(port):
    secret = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
    if len(secret) < 24:
        sys.exit("WEBHOOK_SECRET is not whsec_ and the base64 of 24 to 64 bytes")
    live = os.environ.get("LIVEMODE") != "false"  # events of the other mode change nothing

    class Receiver(http.server.BaseHTTPRequestHandler):
        timeout = 10  # seconds that a slow sender gets
        log_message = lambda *_: None

        def do_POST(self):
            body = read_body(self.headers, self.rfile)
            genuine = verified(secret, self.headers, body)
            event = json.loads(body) if genuine else {}
            if event.get("livemode") is live:
                handle(self.headers["webhook-id"], event)  # it only stores, so that the answer is quick
            self.send_response(204 if genuine else 401)
            self.end_headers()

    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver).serve_forever()


if __name__ == "__main__":
    match = re.fullmatch(
        r"(?:charge|refund (ps_[0-9A-Za-z]+)) ([A-Za-z0-9._-]{1,200}) ([1-9][0-9]{0,8})|listen ([0-9]+)", " ".join(sys.argv[1:])
    )
    if not match:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    session_id, name, amount_cents, port = match.groups()
    if port:
        sys.exit(listen(port))
    sys.exit(refund(session_id, name, amount_cents) if session_id else charge(name, amount_cents))
