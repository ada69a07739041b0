package delivery

import (
	"context"
	"errors"
	"net"
	"sync"
)

// dials ends dials whose attempt has ended. If a kept connection becomes free while an attempt dials, the transport gives that connection to the
// attempt and goes on with the dial. An endpoint that answers on one connection and says nothing on all others would leave a dial for
// each event, 44 KiB for 15 seconds or more. If all dials ended with their attempts, a distant endpoint with many events would never get a second
// connection. So for each address one dial goes on.
type dials struct {
	mu    sync.Mutex
	going map[string]bool // addresses with a dial that goes on
}

func newDials() *dials { return &dials{going: map[string]bool{}} }

// attemptKey is the key of the attempt's context among the values of a context.
type attemptKey struct{}

// bound returns a dial that ends with its attempt, unless it is the one that goes on. The attempt's context is a value of the dial's context, because
// the transport hides its end.
func (d *dials) bound(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		attempt, ok := ctx.Value(attemptKey{}).(context.Context)
		if !ok {
			return nil, errors.New("a dial without an attempt")
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended, goesOn := false, false
		stop := context.AfterFunc(attempt, func() { //nolint:contextcheck // the dial has the values of one context and the end of the other
			d.mu.Lock()
			defer d.mu.Unlock()
			switch {
			case ended:
			case d.going[address]:
				cancel()
			default:
				d.going[address], goesOn = true, true
			}
		})
		defer func() {
			stop()
			d.mu.Lock()
			defer d.mu.Unlock()
			if ended = true; goesOn {
				delete(d.going, address)
			}
		}()
		return dial(ctx, network, address)
	}
}
