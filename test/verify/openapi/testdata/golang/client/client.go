// Command client is what an integrator writes on top of the generated clients: a till and a rail. What it prints does not depend on what a later
// version of the service adds.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/merchant-operator/merchant-operator/test/verify/openapi/testdata/golang/internalapi"
	"github.com/merchant-operator/merchant-operator/test/verify/openapi/testdata/golang/publicapi"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, service string) error {
	public, err := publicapi.NewClientWithResponses(service)
	if err != nil {
		return err
	}
	id, err := till(ctx, public)
	if err != nil {
		return err
	}
	internal, err := internalapi.NewClientWithResponses(service)
	if err != nil {
		return err
	}
	return rail(ctx, internal, id)
}

func till(ctx context.Context, client *publicapi.ClientWithResponses) (id string, err error) {
	order := "1001"
	created, err := client.CreateSessionWithResponse(ctx, &publicapi.CreateSessionParams{IdempotencyKey: &order},
		publicapi.Charge{AmountCents: 1250, OrderRef: &order})
	if err != nil {
		return "", err
	}
	if created.StatusCode() != http.StatusCreated {
		return "", fmt.Errorf("create a session: %s", created.Status())
	}
	id = created.JSON201.SessionId
	fmt.Println("created", id)

	session, err := client.GetSessionWithResponse(ctx, id)
	if err != nil {
		return "", err
	}
	fmt.Println("session is", session.JSON200.Status, "since", *session.JSON200.EndedAt)

	cancelled, err := client.CancelSessionWithResponse(ctx, id)
	if err != nil {
		return "", err
	}
	if cancelled.JSON409 != nil && cancelled.JSON409.Error != "" {
		fmt.Println("not cancelled")
	}

	feed, err := client.ListEventsWithResponse(ctx, nil)
	if err != nil {
		return "", err
	}
	for _, item := range feed.JSON200.Items {
		if err := describe(item.Event); err != nil {
			return "", err
		}
	}
	fmt.Println("go on after", feed.JSON200.Cursor)

	me, err := client.GetMerchantWithResponse(ctx)
	if err != nil {
		return "", err
	}
	fmt.Println("may read:", slices.Contains(me.JSON200.ApiKey.Permissions, "read"))
	return id, nil
}

// describe prints what an event is about, and nothing for a type of a later version.
func describe(event publicapi.Event) error {
	kind, err := event.Discriminator()
	if err != nil {
		return err
	}
	switch kind {
	case "session.completed":
		completed, err := event.AsSessionCompletedEvent()
		if err != nil {
			return err
		}
		fmt.Println(completed.Data.SessionId, "is", completed.Data.Status, "since", completed.Data.EndedAt)
	case "session.late_payment", "session.payment_mismatch":
		refused, err := event.AsLatePaymentEvent()
		if err != nil {
			return err
		}
		fmt.Println(refused.Data.Payment.AmountCents, refused.Data.Payment.Currency, "go back")
	case "session.payment_refunded":
		refunded, err := event.AsPaymentRefundedEvent()
		if err != nil {
			return err
		}
		fmt.Println(refunded.Data.Refund.AmountCents, "of", refunded.Data.Refund.PaymentCents, "went back")
	case "key.rotated":
		rotated, err := event.AsKeyRotatedEvent()
		if err != nil {
			return err
		}
		fmt.Println("key", rotated.Data.KeyId, "has generation", rotated.Data.Generation)
	}
	return nil
}

func rail(ctx context.Context, client *internalapi.ClientWithResponses, id string) error {
	session, err := client.GetSessionWithResponse(ctx, id)
	if err != nil {
		return err
	}
	payee := session.JSON200.Merchant
	fmt.Printf("take money for %s: %t\n", payee.DisplayName, payee.State == "Active")

	settled, err := client.SettleSessionWithResponse(ctx, id, internalapi.Payment{PaymentRef: "bank-1", Outcome: "COMPLETED", AmountCents: 1250})
	if err != nil {
		return err
	}
	settlement := settled.JSON200
	fmt.Println("refund:", !settlement.Applied && settlement.Action != nil && *settlement.Action == internalapi.REFUNDREQUIRED)
	return nil
}
