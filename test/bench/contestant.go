package main

import (
	"context"
	"fmt"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/test/bench/floor"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
)

// The contestants. Other files know them by these names, and so do readers of the JSON.
const (
	bareFloor    = "f1"
	createFloor  = "f2"
	readFloor    = "f2get"
	naiveCreate  = "naive"
	create       = "create"
	createOnce   = "create_idempotent"
	replay       = "replay"
	read         = "read"
	publicRead   = "public"
	merchantMe   = "merchant_me"
	unauthorized = "unauthorized"
)

// contestant is one server with one kind of request.
type contestant struct {
	name    string
	server  *server
	request request
	// trips is how many commands it sends to Redis for one request.
	trips float64
}

func (s *stand) contestants() ([]*contestant, error) {
	stranger, err := apikey.New(published.ID("nobody's"))
	if err != nil {
		return nil, err
	}
	refused := createRequest(stranger.Reveal())
	refused.status = 401
	plain := createRequest(s.key)
	public := publicRequest(s.session)
	return []*contestant{
		{name: bareFloor, server: s.floors, request: plain.to(floor.BarePath)},
		{name: createFloor, server: s.floors, request: plain.to(floor.CreatePath)},
		{name: create, server: s.product, request: plain},
		{name: naiveCreate, server: s.naive, request: plain},
		{name: createOnce, server: s.product, request: onceRequest(s.key)},
		{name: replay, server: s.product, request: replayRequest(s.key)},
		{name: readFloor, server: s.floors, request: public.to(floor.ReadPath)},
		{name: publicRead, server: s.product, request: public},
		{name: read, server: s.product, request: readRequest(s.key, s.session)},
		{name: merchantMe, server: s.product, request: meRequest(s.key)},
		{name: unauthorized, server: s.product, request: refused},
	}, nil
}

func (c *contestant) target() load.Target {
	return load.Target{Address: c.server.address, Request: c.request.next, Status: c.request.status}
}

// countTrips finds out how many commands each sends for a request, with one connection and some requests.
func (s *stand) countTrips(ctx context.Context, all []*contestant) error {
	const some = 20
	for _, c := range all {
		if err := s.renew(ctx); err != nil {
			return err
		}
		if err := load.Times(ctx, c.target(), 2); err != nil { // loads scripts, and notes the last use of the key
			return fmt.Errorf("%s: %w", c.name, err)
		}
		sent, err := s.trips(ctx, func() error { return load.Times(ctx, c.target(), some) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		c.trips = float64(len(sent)) / some
	}
	return nil
}
