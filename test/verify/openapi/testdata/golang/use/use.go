// Package use is what an integrator writes on top of the generated clients.
package use

import (
	"context"
	"fmt"
	"net/http"

	"github.com/merchant-operator/merchant-operator/test/verify/openapi/testdata/golang/internalapi"
	"github.com/merchant-operator/merchant-operator/test/verify/openapi/testdata/golang/publicapi"
)

// Charge makes a session and says when it ended, if it has.
func Charge(ctx context.Context, client *publicapi.ClientWithResponses, order string) (id string, endedAt *int64, err error) {
	created, err := client.CreateSessionWithResponse(ctx, &publicapi.CreateSessionParams{IdempotencyKey: &order},
		publicapi.Charge{AmountCents: 1250, OrderRef: &order})
	if err != nil {
		return "", nil, err
	}
	if created.StatusCode() != http.StatusCreated {
		return "", nil, fmt.Errorf("create a session: %s", created.Status())
	}
	read, err := client.GetSessionWithResponse(ctx, created.JSON201.SessionId)
	if err != nil {
		return "", nil, err
	}
	return read.JSON200.SessionId, read.JSON200.EndedAt, nil
}

// Refund reports whether a rail has to send a payment back.
func Refund(settlement internalapi.Settlement) bool {
	return !settlement.Applied && settlement.Action != nil && *settlement.Action == internalapi.REFUNDREQUIRED
}
