#!/usr/bin/env node
// A merchant's till and webhook receiver. It needs Node.js 18 or later and no packages.
//
//   node merchant.mjs charge ORDER AMOUNT_CENTS            charge an order and wait for its end; exit 0 only if it is paid
//   node merchant.mjs refund SESSION RETURN AMOUNT_CENTS   ask for a refund of a paid session; exit 0 unless it is rejected
//   node merchant.mjs listen PORT                          receive webhooks on 127.0.0.1
//
// Environment: API_URL and API_KEY, or WEBHOOK_SECRET; TIMEOUT in seconds (default 10); LIVEMODE=false receives from test mode.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const { API_URL = "", API_KEY, WEBHOOK_SECRET = "", TIMEOUT = 10 } = process.env;
const apiURL = API_URL.replace(/\/$/, "");
const patience = 180; // seconds of retries; keep it far below the 24 hours that an Idempotency-Key is kept

function fail(message) {
  console.error(message);
  process.exit(1);
}

// send sends a request until it is answered, and returns the decoded answer and its headers.
async function send(method, path, { body, idempotencyKey } = {}) {
  const headers = { "Authorization": `Bearer ${API_KEY}`, "Content-Type": "application/json" };
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const giveUp = Date.now() / 1000 + patience;
  for (let attempt = 0; ; attempt++) {
    let pause = 2 ** attempt;
    let problem;
    try {
      const response = await fetch(apiURL + path, { method, headers, body, signal: AbortSignal.timeout(TIMEOUT * 1000) });
      const text = await response.text();
      if (response.ok) return { answer: JSON.parse(text), headers: response.headers };
      problem = `${response.status} ${text.trim()}, X-Request-Id ${response.headers.get("X-Request-Id")}`;
      if (response.status !== 429 && response.status < 500) fail(`refused: ${problem}`);
      const retryAfter = response.headers.get("Retry-After") ?? "";
      if (/^\d+$/.test(retryAfter)) pause = Number(retryAfter);
    } catch (error) {
      // A lost connection, a timeout or half an answer: nobody knows whether the session exists.
      problem = `no answer: ${error.cause?.message ?? error.message}`;
    }
    if (Date.now() / 1000 + pause > giveUp) fail(`gave up: ${problem}. Run the same command again: it charges and refunds nothing twice`);
    console.error(`${problem}; next attempt in ${pause} s`);
    await sleep(pause * 1000);
  }
}

async function charge(order, amountCents) {
  // The key is of the order, not of the request: whatever is sent again, also by a restarted till, finds the session that exists
  // and charges nothing twice. To charge again after a failed payment, use another key, such as order-1001-2.
  const body = JSON.stringify({ orderRef: order, amountCents: Number(amountCents) });
  let { answer: session, headers } = await send("POST", "/api/v1/sessions", { body, idempotencyKey: `order-${order}` });
  const id = session.sessionId;
  if (headers.get("Idempotency-Mismatch") === "true") {
    fail(`mismatch: order ${order} was charged before with another amount, as session ${id}`);
  }
  console.log(`session ${id}`);
  if (session.idempotent) console.log("replay: an earlier request created it");
  console.log(`payer's page ${apiURL}/pay/${id}`);
  while (session.status === "PENDING") {
    await sleep(2000);
    session = (await send("GET", `/api/v1/sessions/${id}`)).answer;
  }
  console.log(`status ${session.status}`);
  process.exitCode = session.status === "COMPLETED" ? 0 : 1;
}

async function refund(session, name, amountCents) {
  // The key is of the return: whatever is sent again asks for the same refund, and gets its status of now.
  const body = JSON.stringify({ amountCents: Number(amountCents) });
  const { answer } = await send("POST", `/api/v1/sessions/${session}/refunds`, { body, idempotencyKey: `return-${name}` });
  console.log(`refund ${answer.refundId}`);
  console.log(`status ${answer.status}`); // REQUESTED until the payment network has paid it back, which may take days: a webhook tells
  process.exitCode = answer.status === "REJECTED" ? 1 : 0;
}

// verified says whether a webhook is genuine and recent. body is the raw body: JSON that was parsed and written again has other bytes.
function verified(secret, headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures = "" } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) < 300)) return false; // nobody can send an intercepted event again later
  const expected = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body).digest();
  return signatures.split(" ").some((signature) => { // two, while the secret is rotated
    const [version, value = ""] = signature.split(",");
    const given = Buffer.from(value, "base64");
    return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
}

const handled = new Set(); // by webhook-id: a table with a unique index
const statuses = new Map(); // by session id: a table, which also says whose order it is

// handle runs in one transaction. If it does not throw, the event counts as delivered.
async function handle(id, { data }) {
  if (handled.has(id)) return; // events arrive at least once
  handled.add(id);
  if (data.payment) console.log(`note the refund of payment ${data.paymentRef}`);
  const stored = statuses.get(data.sessionId) ?? { sequence: 0 };
  if (!(data.sequence > stored.sequence)) return; // a later event is stored already, or this is no event of a session
  statuses.set(data.sessionId, { sequence: data.sequence, status: data.status });
  if (data.status === stored.status) return;
  if (data.status === "COMPLETED") console.log(`deliver order ${data.orderRef}`);
  if (["FAILED", "EXPIRED", "CANCELLED"].includes(data.status)) console.log(`cancel order ${data.orderRef}`);
}

function listen(port) {
  const secret = Buffer.from(WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
  if (secret.length < 24) fail("WEBHOOK_SECRET is not whsec_ and the base64 of 24 to 64 bytes");
  const live = process.env.LIVEMODE !== "false"; // events of the other mode change nothing
  createServer(async (request, response) => {
    try {
      const chunks = [];
      let size = 0;
      for await (const chunk of request) {
        if ((size += chunk.length) > 64 << 10) return request.destroy(); // far above the size of any event
        chunks.push(chunk);
      }
      const body = Buffer.concat(chunks);
      if (!verified(secret, request.headers, body)) return response.writeHead(401).end();
      const event = JSON.parse(body);
      if (event.livemode === live) await handle(request.headers["webhook-id"], event); // it only stores, so that the answer is quick
      response.writeHead(204).end();
    } catch {
      response.writeHead(503).end(); // the event is sent again
    }
  }).listen(port, "127.0.0.1");
}

const [, session, name, amountCents, port] =
  /^(?:charge|refund (ps_[0-9A-Za-z]+)) ([\w.-]{1,200}) ([1-9]\d{0,8})$|^listen (\d+)$/.exec(process.argv.slice(2).join(" ")) ?? [];
if (port) {
  listen(port);
} else if (session) {
  await refund(session, name, amountCents);
} else if (name) {
  await charge(name, amountCents);
} else {
  console.error("usage: merchant.mjs charge ORDER AMOUNT_CENTS | refund SESSION RETURN AMOUNT_CENTS | listen PORT");
  process.exitCode = 2;
}
