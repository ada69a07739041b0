// What an integrator writes on top of the generated types.
import type { components as internal } from "./internal-openapi";
import type { components, operations } from "./openapi";

const charge: components["schemas"]["Charge"] = { amountCents: 1250, orderRef: "1001" };
const headers: operations["createSession"]["parameters"]["header"] = { "Idempotency-Key": "order-1001" };

export const body: operations["createSession"]["requestBody"]["content"]["application/json"] = charge;
export const key: string | undefined = headers?.["Idempotency-Key"];

export function endedAt(session: components["schemas"]["MerchantSession"]): number | undefined {
  return session.status === "PENDING" ? undefined : session.endedAt;
}

export function refund(settlement: internal["schemas"]["Settlement"]): boolean {
  return !settlement.applied && settlement.action === "REFUND_REQUIRED";
}

// @ts-expect-error: an amount is a number
export const wrong: components["schemas"]["Charge"] = { amountCents: "1250" };
