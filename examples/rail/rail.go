package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log"
	"sync"
	"time"
)

// rail connects the bank with merchant-operator. It has no disk of its own: the bank's books say what has moved, so that it can be reported again,
// and the API says what is to be paid back. A rail whose network cannot list its movements writes a payment down before it begins.
type rail struct {
	api   *api
	books *books
	// refused wakes payBack: a payment was refused.
	refused chan struct{}

	mu      sync.Mutex
	answers map[string]payment // what the API has said to reports, by the payment's Ref
	alerts  map[string]string  // problems that a person must look at, by the refund's name
}

func newRail(a *api, b *books) *rail {
	return &rail{api: a, books: b, refused: make(chan struct{}, 1), answers: map[string]payment{}, alerts: map[string]string{}}
}

// payment is money that moves for a session.
type payment struct {
	Ref     string    `json:"ref"` // of one movement of money, never used again
	Session session   `json:"session"`
	At      time.Time `json:"at"`
	Step    string    `json:"step"`
	Problem string    `json:"problem,omitempty"` // why a person must look
	// BackCents is how much of it went back.
	BackCents int64 `json:"backCents"`
	// Closed: the payer has closed the account.
	Closed bool `json:"closed,omitempty"`
}

// The steps of a payment.
const (
	stepMoved   = "moved"   // the payer's money has moved; the report has no answer yet
	stepSettled = "settled" // the session took it
	stepRefused = "refused" // the session did not take it: the money goes back
)

func newPayment(s session) payment {
	return payment{Ref: "bank-" + rand.Text(), Session: s, At: time.Now(), Step: stepMoved}
}

// list has all payments, in the order in which they were made.
func (r *rail) list() []payment {
	all := r.books.payments()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		if answer, found := r.answers[all[i].Ref]; found {
			all[i].Step, all[i].Problem = answer.Step, answer.Problem
		}
	}
	return all
}

// find is the payment of a session.
func (r *rail) find(sessionID string) (p payment, found bool) {
	for _, p := range r.list() {
		if p.Session.ID == sessionID {
			return p, true
		}
	}
	return payment{}, false
}

// holdSeconds is longer than the payer's money takes to move. A hold ends with the report, or without it after this time.
const holdSeconds = 20

// pay pays a session, and returns its payment when it is reported or ctx ends. After an error no money has moved.
func (r *rail) pay(ctx context.Context, s session) (payment, error) {
	p := newPayment(s)
	// Ask before money moves: who else has scanned this code is refused meanwhile, and nothing has to go back.
	err := r.api.hold(ctx, p, holdSeconds)
	if errors.As(err, new(apiError)) {
		return payment{}, err
	}
	if err == nil {
		err = r.books.charge(p)
	}
	if err != nil { // nobody knows whether it is held: let others pay
		go r.release(context.WithoutCancel(ctx), p)
		return payment{}, err
	}
	reported := make(chan struct{})
	go func() { // the payer may leave; the report may not
		r.report(context.WithoutCancel(ctx), p)
		close(reported)
	}()
	select {
	case <-reported:
	case <-ctx.Done():
	}
	p, _ = r.find(s.ID)
	return p, nil
}

// release ends the hold of a payment that has moved no money. Without an answer the hold ends after holdSeconds.
func (r *rail) release(ctx context.Context, p payment) {
	ctx, cancel := context.WithTimeout(ctx, holdSeconds*time.Second)
	defer cancel()
	if err := r.api.hold(ctx, p, 0); err != nil {
		log.Printf("release session %s: %v", p.Session.ID, err)
	}
}

// kept is for how long the API keeps a session after a report: a payment of before needs no more reports, and would get 404.
const kept = 30 * 24 * time.Hour

// reportAll reports again what an earlier run may have left. A report that was answered gets the same answer.
func (r *rail) reportAll(ctx context.Context) {
	for _, p := range r.books.payments() {
		if time.Since(p.At) < kept {
			go r.report(ctx, p)
		}
	}
}

// report tells the API, until it answers, that the money has moved.
func (r *rail) report(ctx context.Context, p payment) {
	refund, err := r.api.settle(ctx, p, "COMPLETED")
	switch {
	case err != nil: // the API has refused it
		p.Problem = err.Error()
	case refund:
		p.Step = stepRefused
	default:
		p.Step = stepSettled
	}
	log.Printf("payment %s: %s %s", p.Ref, p.Step, p.Problem)
	r.mu.Lock()
	r.answers[p.Ref] = p
	r.mu.Unlock()
	if refund {
		select {
		case r.refused <- struct{}{}:
		default: // it is awake
		}
	}
}
