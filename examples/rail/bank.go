package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log"
	"time"
)

// bank pays sessions.
type bank struct {
	api     *api
	journal *journal
}

// pay pays a session, which was read before: what has ended meanwhile sends the money back. After an error no money has moved. The channel has
// the payment when it is finished, which may be days later.
func (b *bank) pay(ctx context.Context, s session) (<-chan payment, error) {
	p := payment{
		Ref: "bank-" + rand.Text(), Session: s.ID, Merchant: s.Merchant.ID, AmountCents: s.AmountCents, Currency: s.Currency,
		At: time.Now(), Step: stepMoved,
	}
	// In this bank, the line in the journal is the movement of money.
	if err := b.journal.write(p); err != nil {
		return nil, err
	}
	finished := make(chan payment, 1)
	go func() { // the payer may leave; the report may not
		finished <- b.finish(context.WithoutCancel(ctx), p)
	}()
	return finished, nil
}

// decline reports that the payer does not pay: no money has moved, and none will under this reference.
func (b *bank) decline(ctx context.Context, s session) error {
	p := payment{Ref: "bank-" + rand.Text(), Session: s.ID, AmountCents: s.AmountCents, Currency: s.Currency, At: time.Now()}
	asking, cancel := context.WithTimeout(ctx, patienceOfPayer)
	defer cancel()
	_, err := b.api.settle(asking, p, "FAILED", "declined by the payer")
	return err // without an answer the session expires
}

// resume finishes what an earlier run of this program has begun.
func (b *bank) resume(ctx context.Context) {
	for _, p := range b.journal.list() {
		if p.unfinished() {
			go b.finish(ctx, p)
		}
	}
}

// finish does what is left of a payment after its money has moved: the report, and the refund if the session does not take it.
func (b *bank) finish(ctx context.Context, p payment) payment {
	for p.unfinished() {
		step, err := b.next(ctx, p)
		switch {
		case errors.As(err, new(*refusal)):
			p.Step, p.Note = stepCheck, err.Error()
			log.Printf("payment %s of session %s: %v: a person must look", p.Ref, p.Session, err)
		case err != nil:
			log.Printf("payment %s of session %s: %v: it goes on at the next start", p.Ref, p.Session, err)
			return p
		default:
			p.Step = step
		}
		if err := b.journal.write(p); err != nil {
			log.Printf("payment %s of session %s: %v: it goes on at the next start", p.Ref, p.Session, err)
			return p
		}
	}
	return p
}

// next takes a payment one step on, and may be repeated after a crash.
func (b *bank) next(ctx context.Context, p payment) (step string, err error) {
	if p.Step == stepOwed { // send the money back, by its reference once; here the next line of the journal does it
		return stepBack, nil
	}
	answer, err := b.api.settle(ctx, p, "COMPLETED", "")
	if err == nil && answer.Action == "REFUND_REQUIRED" {
		return stepOwed, nil
	}
	return stepSettled, err
}
