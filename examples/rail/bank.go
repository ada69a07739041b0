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
	return payment{Ref: "bank-" + rand.Text(), Session: s, At: time.Now(), Step: stepMoved}
}

// holdSeconds is longer than the payer's money takes to move. A hold ends with the report, or without it after this time.
const holdSeconds = 20

// pay pays a session, and returns its payment when it is finished or ctx ends. After an error no money has moved.
func (b *bank) pay(ctx context.Context, s session) (payment, error) {
	p := newPayment(s)
	// Ask before money moves: who else has scanned this code is refused meanwhile, and nothing has to go back.
	err := b.api.hold(ctx, p, holdSeconds)
	if errors.As(err, new(apiError)) {
		return payment{}, err
	}
	if err == nil { // in this bank, the line in the journal is the movement of money
		err = b.journal.write(p)
	}
	if err != nil { // nobody knows whether it is held: let others pay
		go b.release(context.WithoutCancel(ctx), p)
		return payment{}, err
	}
	finished := make(chan struct{})
	go func() { // the payer may leave; the report may not
		b.finish(context.WithoutCancel(ctx), p)
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	p, _ = b.journal.find(s.ID)
	return p, nil
}

// release ends the hold of a payment that has moved no money. Without an answer the hold ends after holdSeconds.
func (b *bank) release(ctx context.Context, p payment) {
	ctx, cancel := context.WithTimeout(ctx, holdSeconds*time.Second)
	defer cancel()
	if err := b.api.hold(ctx, p, 0); err != nil {
		log.Printf("release session %s: %v", p.Session.ID, err)
	}
}

// finish does what is left of a payment after its money has moved. A crash repeats a step, under the same references.
func (b *bank) finish(ctx context.Context, p payment) {
	for p.Problem == "" && p.Step != stepSettled && p.Step != stepConfirmed {
		step, err := b.next(ctx, p)
		if err != nil { // the API has refused it
			p.Problem = err.Error()
		} else {
			p.Step = step
		}
		if err := b.journal.write(p); err != nil {
			log.Printf("payment %s: %v", p.Ref, err)
			return
		}
		log.Printf("payment %s: %s %s", p.Ref, p.Step, p.Problem)
	}
}

// next takes a step, and says which.
func (b *bank) next(ctx context.Context, p payment) (step string, err error) {
	switch p.Step {
	case stepMoved:
		refund, err := b.api.settle(ctx, p, "COMPLETED")
		if refund {
			return stepOwed, err
		}
		return stepSettled, err
	case stepOwed:
		return stepBack, nil // in this bank, the line in the journal gives the money back
	default:
		return stepConfirmed, b.api.confirm(ctx, p)
	}
}
