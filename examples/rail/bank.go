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

func newPayment(s session) payment {
	return payment{
		Ref: "bank-" + rand.Text(), Session: s.ID, Merchant: s.Merchant.ID, AmountCents: s.AmountCents, Currency: s.Currency, At: time.Now(), Step: stepMoved,
	}
}

// holdSeconds is longer than the payer's money takes to move. A hold ends with the report, or by itself if this program is killed.
const holdSeconds = 30

// pay pays a session. After an error no money has moved. The channel has the payment when it is finished, which may be days later.
func (b *bank) pay(ctx context.Context, s session) (<-chan payment, error) {
	p := newPayment(s)
	asking, cancel := context.WithTimeout(ctx, patienceOfPayer)
	defer cancel()
	// Ask before money moves: who else has scanned this code is refused meanwhile, and nothing has to go back.
	err := b.api.hold(asking, p, holdSeconds)
	if errors.As(err, new(*refusal)) {
		return nil, err
	}
	if err == nil { // in this bank, the line in the journal is the movement of money
		err = b.journal.write(p)
	}
	if err != nil { // let others pay, also if nobody knows whether it is held
		go b.release(context.WithoutCancel(ctx), p)
		return nil, err
	}
	finished := make(chan payment, 1)
	go func() { // the payer may leave; the report may not
		finished <- b.finish(context.WithoutCancel(ctx), p)
	}()
	return finished, nil
}

// release ends the hold of a payment that has moved no money. Without an answer the hold ends by itself.
func (b *bank) release(ctx context.Context, p payment) {
	releasing, cancel := context.WithTimeout(ctx, holdSeconds*time.Second)
	defer cancel()
	if err := b.api.hold(releasing, p, 0); err != nil {
		log.Printf("release session %s: %v", p.Session, err)
	}
}

// decline reports that the payer does not pay: no money has moved, and none will under this reference.
func (b *bank) decline(ctx context.Context, s session) error {
	_, err := b.api.settle(ctx, newPayment(s), "FAILED", "declined by the payer")
	return err // without an answer the session expires
}

// resume finishes what an earlier run of this program has begun.
func (b *bank) resume(ctx context.Context) {
	for _, p := range b.journal.list() {
		go b.finish(ctx, p)
	}
}

// finish does what is left of a payment after its money has moved: the report, and the refund if the session does not take it.
func (b *bank) finish(ctx context.Context, p payment) payment {
	for p.unfinished() {
		next, err := b.next(ctx, p)
		if err == nil {
			err = b.journal.write(next)
		}
		if err != nil {
			log.Printf("payment %s of session %s: %v: it goes on at the next start", p.Ref, p.Session, err)
			return p
		}
		p = next
	}
	return p
}

// next takes a payment one step on, and may be repeated after a crash.
func (b *bank) next(ctx context.Context, p payment) (payment, error) {
	if p.Step == stepOwed { // send the money back, by its reference once; here the next line of the journal does it
		p.Step = stepBack
		return p, nil
	}
	refund, err := b.api.settle(ctx, p, "COMPLETED", "")
	switch {
	case errors.As(err, new(*refusal)):
		log.Printf("payment %s of session %s: %v: a person must look", p.Ref, p.Session, err)
		p.Step, p.Note = stepCheck, err.Error()
		return p, nil
	case refund:
		p.Step = stepOwed
	default:
		p.Step = stepSettled
	}
	return p, err
}
