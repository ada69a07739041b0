package reconciler

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A revocation that failed while the API server was away for hours is tried again within seconds after that.
func TestRetries_Longest(t *testing.T) {
	limiter, request := newRetries(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shops", Name: "till"}}
	last := time.Duration(0)
	for n := range 20 {
		delay := limiter.When(request)
		if delay < last || delay > maxRetry || n < 10 && delay <= last {
			t.Fatalf("retry %d: after %s, the one before after %s", n, delay, last)
		}
		last = delay
	}
	limiter.Forget(request)
	if delay := limiter.When(request); delay != minRetry {
		t.Errorf("after a success it waits for %s", delay)
	}
}

// Thousands of objects of one namespace that fail permanently cost a few retries a second, and delay no others.
func TestRetries_Crowd(t *testing.T) {
	limiter := newRetries()
	fail := func(namespace, name string) (delay time.Duration) {
		for range 11 { // until it has the longest delay
			delay = limiter.When(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
		}
		return delay
	}
	const objects = 3000
	perSecond := 0.0
	for i := range objects {
		perSecond += 1 / fail("crowded", fmt.Sprint(i)).Seconds()
	}
	if most := objects/crowdedRetry.Seconds() + 2*retriesPerSecond; perSecond > most {
		t.Errorf("%.0f retries a second, want at most %.0f", perSecond, most)
	}
	if delay := fail("shops", "till"); delay != maxRetry {
		t.Errorf("an object of another namespace waits for %s", delay)
	}
}

// An object that fails waits longer each time, whatever asks, until its spec changes or it succeeds.
func TestFailures(t *testing.T) {
	var f failures
	object := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{UID: "one", Generation: 1}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	if f.wait(object, now) > 0 {
		t.Error("it waits before it has failed")
	}
	last := time.Duration(0)
	for n := range 40 {
		f.note(object, true, now)
		wait := f.wait(object, now)
		if wait < last || wait > maxBackoff || n < 10 && wait <= last {
			t.Fatalf("failure %d: waits %s after %s", n, wait, last)
		}
		last = wait
	}
	if last != maxBackoff || f.wait(object, now.Add(-time.Hour)) != maxBackoff {
		t.Errorf("waits %s at last", last)
	}
	if wait := f.wait(object, now.Add(last)); wait > 0 {
		t.Errorf("waits another %s after that", wait)
	}
	object.Generation = 2
	if f.wait(object, now) > 0 {
		t.Error("a new spec waits")
	}
	f.note(object, true, now)
	if wait := f.wait(object, now); wait != minBackoff {
		t.Errorf("a new spec that failed once waits %s", wait)
	}
	f.note(object, false, now)
	if f.wait(object, now) > 0 || len(f.failed) != 0 {
		t.Error("it waits after it has succeeded")
	}
}

// Objects that fail, and vanish without a deletion that the operator sees, do not fill its memory.
func TestFailures_ObjectsThatVanish(t *testing.T) {
	var f failures
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	fail := func(uid types.UID) {
		f.note(&v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{UID: uid}}, true, now)
	}
	const each = 100
	for n := range 60 {
		for i := range each {
			fail(types.UID(fmt.Sprint(n, "/", i)))
		}
		fail("stays") // and fails on
		now = now.Add(time.Minute)
	}
	if most := int(2*maxBackoff/time.Minute)*each + each + 1; len(f.failed) > most {
		t.Errorf("%d objects are remembered, want at most %d", len(f.failed), most)
	}
	if f.failed["stays"].count != 60 {
		t.Errorf("an object that fails on counts as failed %d times", f.failed["stays"].count)
	}
}
