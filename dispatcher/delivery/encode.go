package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// ErrUnspeakable says that an event lacks what its kind tells of.
var ErrUnspeakable = errors.New("the event lacks what its kind tells of")

// Encode returns the body of an event, the same bytes whenever it is called: nothing but the event
// goes into it. The error is ErrUnspeakable.
//
// Attempts for one event are days apart, and a newer release may make the later ones: a change to
// what is written here is a change of bodies that receivers have seen already.
func Encode(event outbox.Event) ([]byte, error) {
	data, err := dataOf(event)
	if err != nil {
		return nil, err
	}
	return marshal(body{
		Type:      event.Kind,
		Timestamp: event.OccurredAt.UTC().Format(timestampLayout),
		Data:      data,
	})
}

// timestampLayout is RFC 3339 to the millisecond; time.Time's own encoding drops zeros.
const timestampLayout = "2006-01-02T15:04:05.000Z07:00"

func dataOf(event outbox.Event) (any, error) {
	switch event.Kind {
	case v1alpha1.EventKeyRotated:
		if event.Key != nil {
			return keyDataOf(event), nil
		}
	case v1alpha1.EventLatePayment, v1alpha1.EventPaymentMismatch:
		if event.Session != nil && event.Session.Payment != nil {
			return sessionDataOf(event), nil
		}
	case v1alpha1.EventSessionCreated, v1alpha1.EventSessionCompleted, v1alpha1.EventSessionFailed,
		v1alpha1.EventSessionExpired, v1alpha1.EventSessionCancelled:
		if event.Session != nil && event.Session.Payment == nil {
			return sessionDataOf(event), nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnspeakable, event.Kind)
}

// marshal writes no newline, and & < > as they are: the body is not a part of a page.
func marshal(body body) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("encode a %s event: %w", body.Type, err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// milliseconds is how times are written within data, as everywhere in the HTTP API; 0: there is none.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
