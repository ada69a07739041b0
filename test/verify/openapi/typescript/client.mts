// What an integrator writes on top of the generated types: a till and a rail. What it prints does not depend on what a later version of the service adds.
import type { components as internal } from "./internal-openapi";
import type { components, operations } from "./openapi";

type Public = components["schemas"];
type Internal = internal["schemas"];

declare const process: { argv: string[] };
const service = process.argv[2];

async function call<Body>(method: string, path: string, headers: Record<string, string> = {}, body?: unknown): Promise<{ status: number; body: Body }> {
  const response = await fetch(service + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  return { status: response.status, body: (await response.json()) as Body };
}

// describe says what an event is about; undefined for a type of a later version.
function describe(event: Public["Event"]): string | undefined {
  switch (event.type) {
    case "session.completed": {
      const ended: number = event.data.endedAt;
      return `${event.data.sessionId} is ${event.data.status} since ${ended}`;
    }
    case "session.late_payment":
    case "session.payment_mismatch":
      return `${event.data.payment.amountCents} ${event.data.payment.currency} go back`;
    case "session.payment_refunded": {
      const cents: number = event.data.refund.amountCents;
      return `${cents} of ${event.data.refund.paymentCents} went back`;
    }
    case "key.rotated":
      return `key ${event.data.keyId} has generation ${event.data.generation}`;
    default:
      return undefined;
  }
}

const charge: Public["Charge"] = { amountCents: 1250, orderRef: "1001" };
const idempotency: operations["createSession"]["parameters"]["header"] = { "Idempotency-Key": "order-1001" };
const created = await call<Public["CreatedSession"]>("POST", "/api/v1/sessions", idempotency, charge);
console.log(`created ${created.body.sessionId}`);

const session = await call<Public["MerchantSession"]>("GET", `/api/v1/sessions/${created.body.sessionId}`);
console.log(`session is ${session.body.status} since ${session.body.endedAt ?? "never"}`);

const cancelled = await call<Public["MerchantSession"] | Public["Error"]>("POST", `/api/v1/sessions/${created.body.sessionId}/cancel`);
console.log(cancelled.status === 409 ? "not cancelled" : "cancelled");

const feed = await call<Public["Events"]>("GET", "/api/v1/events");
for (const { event } of feed.body.items) {
  const text = describe(event);
  if (text !== undefined) console.log(text);
}
console.log(`go on after ${feed.body.cursor}`);

const me = await call<Public["Profile"]>("GET", "/api/v1/merchant/me");
console.log(`may read: ${me.body.apiKey.permissions.includes("read")}`);

const payee = (await call<Internal["Session"]>("GET", `/internal/v1/sessions/${created.body.sessionId}`)).body.merchant;
console.log(`take money for ${payee.displayName}: ${payee.state === "Active"}`);

const report: Internal["Payment"] = { paymentRef: "bank-1", outcome: "COMPLETED", amountCents: 1250 };
const settled = await call<Internal["Settlement"]>("POST", `/internal/v1/sessions/${created.body.sessionId}/settlement`, {}, report);
console.log(`refund: ${!settled.body.applied && settled.body.action === "REFUND_REQUIRED"}`);

// @ts-expect-error: an amount is a number
export const wrong: Public["Charge"] = { amountCents: "1250" };
