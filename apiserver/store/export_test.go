package store

import "github.com/merchant-operator/merchant-operator/apiserver/outbox"

// EventOf lets tests read events without leasing them.
func EventOf(id string, fields map[string]string) (outbox.Event, error) { return eventOf(id, fields) }
