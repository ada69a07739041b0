package main

import (
	"context"
	"errors"
	"log"
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
	payments, listed, incomplete := r.list(), map[string]bool{}, false
	for after := ""; ; {
		page, err := r.api.owed(ctx, after)
		if err != nil {
			return err
		}
		for _, o := range page.Refunds {
			listed[o.PaymentRef] = true
			r.alert(o.RefundRef, r.refund(ctx, o))
		}
		incomplete = incomplete || page.Incomplete
		if after = page.Cursor; after == "" {
			break
		}
	}
	if incomplete {
		return errors.New("some could not be read; they are in the list of the next time")
	}
	for _, p := range payments { // a session keeps a hundred refused payments; a further one is not in the list
		if p.Step == stepRefused && p.BackCents < p.Session.AmountCents && !listed[p.Ref] {
			r.alert(p.Ref, errors.New("the session has refused this payment, and does not know it: give the money back"))
		}
	}
	return nil
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
