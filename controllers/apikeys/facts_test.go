package apikeys

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// A process that is frozen while it reads sees what others did meanwhile. By the time before that, the new key would be older than the one
// that it replaces, which replicas would go on to accept.
func TestGather_TimeOfTheFacts(t *testing.T) {
	const away = time.Hour
	for name, test := range map[string]struct {
		frozenAt string
		gather   func(*Reconciler, facts) (facts, error)
	}{
		"all facts, frozen at the record": {
			published.KeyName(published.ID(thisUID)),
			func(r *Reconciler, f facts) (facts, error) { return r.gatherUncached(t.Context(), f.apiKey) },
		},
		"all facts, frozen at the delivered Secret": {
			"till-key",
			func(r *Reconciler, f facts) (facts, error) { return r.gatherUncached(t.Context(), f.apiKey) },
		},
		"a restriction": {
			published.KeyName(published.ID(thisUID)),
			func(r *Reconciler, f facts) (facts, error) {
				return r.readPublished(t.Context(), r.APIReader, f.apiKey)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, wrong, f := clocktesting.NewFakePassiveClock(now), false, upToDate()
			r := frozen(t, clock, func(_ client.Client, read client.ObjectKey) {
				if read.Name == test.frozenAt {
					clock.SetTime(now.Add(away))
					wrong = true
				}
			}, stored(t, f)...)
			r.ClockWrong = func() bool { return wrong }
			f, err := test.gather(r, f)
			if err != nil {
				t.Fatal(err)
			}
			if !f.now.Equal(now.Add(away)) || !f.clockWrong {
				t.Errorf("the time is %s after %s of reading, wrong: %t", f.now, away, f.clockWrong)
			}
		})
	}
}
