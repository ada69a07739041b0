package ingress

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// A replica stops while tills charge and payers wait: no charge fails, and streams end as they do at any end, so that pages come back.
func TestDrain(t *testing.T) {
	t.Parallel()
	key := shop(t)
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaving, stop := installation.APIServer(t, "leaving-"+name, func(o *apiserver.Options) {
				behindProxy(o)
				o.DrainDelay = time.Second
			})
			p, id := startProxy(t, name, leaving, replicas[1]), charge(t, key)
			var streams []stream
			for range 4 {
				s, err := open(t, client(t, till), "http://"+p.IPv4, id)
				if err == nil {
					err = s.until("PENDING")
				}
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			var tills sync.WaitGroup
			var charges, after atomic.Int64
			var stopped, over atomic.Bool
			for range 8 {
				tills.Go(func() {
					one := client(t, till)
					for !over.Load() {
						answer, err := fixture.Call(one, "http://"+p.IPv4, http.MethodPost, fixture.Sessions, key, `{"amountCents":100}`)
						if err != nil || answer.Status != http.StatusCreated {
							t.Errorf("a charge: %d %s, %v", answer.Status, answer.Raw, err)
							return
						}
						charges.Add(1)
						if stopped.Load() {
							after.Add(1)
						}
					}
				})
			}
			await(t, "tills charge", func() bool { return charges.Load() > 100 || t.Failed() })
			stop()
			stopped.Store(true)
			await(t, "tills charge at the other replica", func() bool { return after.Load() > 100 || t.Failed() })
			over.Store(true)
			tills.Wait()

			ended := 0
			cancel(t, key, id)
			for _, s := range streams {
				switch err := s.until("CANCELLED"); {
				case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
					ended++
				case err != nil:
					t.Errorf("a stream ended with %v", err)
				}
			}
			if ended == 0 || ended == len(streams) {
				t.Errorf("%d of %d streams were of the replica that stopped", ended, len(streams))
			}
		})
	}
}
