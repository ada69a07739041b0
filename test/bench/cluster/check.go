package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// checkers ask at the same time.
const checkers = 16

// verdict is what came of asking and looking at every answer.
type verdict struct {
	Asked int `json:"asked"`
	// Unavailable were answered 503, which promises nothing and is repeated.
	Unavailable int `json:"unavailable"`
	Wrong       int `json:"wrong"`
	// Examples are the first few wrong ones.
	Examples []string `json:"examples,omitempty"`

	sessions []string // one of each merchant; the order of the merchants
	orders   []order
}

func (v *verdict) add(other verdict) {
	const few = 5
	v.Asked += other.Asked
	v.Unavailable += other.Unavailable
	v.Wrong += other.Wrong
	v.Examples = append(v.Examples, other.Examples...)
	v.Examples = v.Examples[:min(few, len(v.Examples))]
}

// check has every merchant charge, charge again with the same Idempotency-Key, read, have its payer read, be refused another's
// session, and cancel another charge, and looks at every answer. name makes the charges different from those of other rounds.
func (c *caller) check(ctx context.Context, all []merchant, name string) verdict {
	v := verdict{sessions: make([]string, len(all)), orders: make([]order, len(all))}
	parts := make([]verdict, checkers)
	var checking sync.WaitGroup
	for worker := range checkers {
		checking.Go(func() {
			for i := worker; i < len(all) && ctx.Err() == nil; i += checkers {
				o := order{all[i], fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("order %s %d", name, i), 100 + i}
				v.orders[i] = o
				v.sessions[i] = c.checkOne(ctx, &parts[worker], o, all[(i+1)%len(all)])
			}
		})
	}
	checking.Wait()
	for _, part := range parts {
		v.add(part)
	}
	return v
}

// checkOne returns the id of the session that was made and left pending; empty if none was.
func (c *caller) checkOne(ctx context.Context, v *verdict, o order, stranger merchant) string {
	created, err := c.create(ctx, o)
	if !v.expect("create", http.StatusCreated, created, err,
		created.SessionID != "" && created.Status == "PENDING" && !created.replayed) {
		return ""
	}
	id := created.SessionID
	again, err := c.create(ctx, o)
	v.expect("replay", http.StatusCreated, again, err, again.SessionID == id && again.replayed && again.Idempotent)
	read, err := c.read(ctx, o.merchant, id)
	v.expect("read", http.StatusOK, read, err,
		read.SessionID == id && read.OrderRef == o.ref && read.AmountCents == o.cents && read.Status == "PENDING")
	public, err := c.readAsPayer(ctx, id)
	v.expect("public read", http.StatusOK, public, err,
		public.MerchantName == o.merchant.name && public.AmountCents == o.cents && public.Status == "PENDING")
	foreign, err := c.read(ctx, stranger, id)
	v.expect("read by another merchant", http.StatusNotFound, foreign, err, foreign.SessionID == "")

	other := o
	other.once += "-cancelled"
	if created, err = c.create(ctx, other); v.expect("create", http.StatusCreated, created, err, created.SessionID != id) {
		cancelled, err := c.cancel(ctx, other, created.SessionID)
		v.expect("cancel", http.StatusOK, cancelled, err, cancelled.SessionID == created.SessionID && cancelled.Status == "CANCELLED")
	}
	return id
}

// expect counts an answer, and says whether it was the right one.
func (v *verdict) expect(what string, status int, got answer, err error, right bool) bool {
	v.Asked++
	switch {
	case err == nil && got.status == status && right:
		return true
	case err == nil && got.status == http.StatusServiceUnavailable:
		v.Unavailable++
	default:
		v.Wrong++
		v.Examples = append(v.Examples, fmt.Sprintf("%s: %+v, %v", what, got, err))
	}
	return false
}
