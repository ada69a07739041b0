package main

import (
	"context"
	"errors"
	"log"
	"slices"
	"time"
)

// payBack pays back what the API says that this rail owes: now, in each period, and when a payment was refused. Whatever fails is in the list of the
// next time.
func (r *rail) payBack(ctx context.Context, period time.Duration) {
	for {
		if err := r.payOwed(ctx); err != nil {
			log.Printf("refunds: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.refused:
		case <-time.After(period):
		}
	}
}

// payOwed pays back all refunds of the list.
func (r *rail) payOwed(ctx context.Context) error {
	payments, listed := r.list(), map[string]bool{}
	all, unread := r.readOwed(ctx)
	for _, o := range inTurn(all) {
		listed[o.PaymentRef] = true
		r.alert(o.RefundRef, r.refund(ctx, o))
	}
	if unread != nil {
		return unread
	}
	for _, p := range payments { // a session keeps a hundred refused payments; a further one is not in the list
		if p.Step == stepRefused && p.BackCents < p.Session.AmountCents && !listed[p.Ref] {
			r.alert(p.Ref, errors.New("the session has refused this payment, and does not know it: give the money back"))
		}
	}
	return nil
}

// readOwed reads the list, and returns what it has read also with an error: the rest is in the list of the next time.
func (r *rail) readOwed(ctx context.Context) (all []owed, err error) {
	incomplete := false
	for after := ""; ; {
		page, err := r.api.owed(ctx, after)
		if err != nil {
			return all, err
		}
		all, incomplete = append(all, page.Refunds...), incomplete || page.Incomplete
		if after = page.Cursor; after == "" {
			break
		}
	}
	if incomplete {
		return all, errors.New("some could not be read; they are in the list of the next time")
	}
	return all, nil
}

// inTurn returns the refunds in an order in which each merchant has its first one before any has a second: a thousand of one merchant must not
// delay the one of another.
func inTurn(all []owed) []owed {
	var rounds [][]owed
	refunds := map[string]int{} // of each merchant so far
	for _, o := range all {
		round := refunds[o.MerchantID]
		refunds[o.MerchantID]++
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], o)
	}
	return slices.Concat(rounds...)
}

// refund pays a refund back and confirms it, under the name that the list says until then: killed anywhere, the rail comes here again with the same
// name, and the bank pays it once. The error is for a person.
func (r *rail) refund(ctx context.Context, o owed) error {
	err := r.books.payBack(o.RefundRef, o.PaymentRef, o.AmountCents)
	switch {
	case errors.Is(err, errClosed) && o.Cause == causeRequested: // it has not been paid, and never will
		err = r.api.reject(ctx, o, err.Error())
	case err != nil:
		return err
	default:
		err = r.api.confirm(ctx, o)
	}
	if err != nil && !errors.As(err, new(apiError)) { // nobody knows whether it was received: the next list says
		log.Printf("refund %s: %v", o.RefundRef, err)
		return nil
	}
	return err
}

// alert stands for what wakes a person, once for each problem.
func (r *rail) alert(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		delete(r.alerts, name)
	case r.alerts[name] != err.Error():
		r.alerts[name] = err.Error()
		log.Printf("a person must look at %s: %v", name, err)
	}
}
