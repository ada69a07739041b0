package store

import (
	"errors"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
)

// eventOf decodes the hash of an event, whatever else is in it: name and value of each field, as
// (*reply).pairs reads them from an HGETALL. The error is ErrCorrupt.
func eventOf(id string, fields map[string]string) (outbox.Event, error) {
	return outbox.Event{}, errors.New("not built yet")
}
