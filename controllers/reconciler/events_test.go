package reconciler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// recorded are the notes of events, by namespace and type.
type recorded map[eventSource][]string

// Eventf implements recorder.EventRecorder.
func (r recorded) Eventf(object, _ runtime.Object, eventType, _, _, note string, args ...any) {
	of := eventSource{object.(*v1alpha1.ApiKey).Namespace, eventType}
	r[of] = append(r[of], fmt.Sprintf(note, args...))
}

// AnnotatedEventf implements recorder.EventRecorder.
func (r recorded) AnnotatedEventf(object, _ runtime.Object, _ map[string]string, eventType, reason, action, note string, args ...any) {
	r.Eventf(object, nil, eventType, reason, action, note, args...)
}

func apiKeyIn(namespace string) *v1alpha1.ApiKey {
	return &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "till"}}
}

// A tenant whose objects change without end takes no event from another tenant, and no warning from itself.
func TestEmit_OneTenant(t *testing.T) {
	events, clock := recorded{}, clocktesting.NewFakePassiveClock(start)
	b := &Base{Events: events, Clock: clock}
	const many = 10_000
	for range many {
		b.Emit(apiKeyIn("busy"), "Published", "Publish", "Published key")
	}
	b.Warn(apiKeyIn("busy"), "KeyLost", "Issue", "The key was lost")
	b.Emit(apiKeyIn("victim"), "Published", "Publish", "Published key")
	busy := eventSource{"busy", corev1.EventTypeNormal}
	if got := len(events[busy]); got != eventsBurst {
		t.Errorf("%d of %d events at once are recorded, want %d", got, many, eventsBurst)
	}
	if got := len(events[eventSource{"busy", corev1.EventTypeWarning}]); got != 1 {
		t.Errorf("%d of one warning are recorded", got)
	}
	if got := len(events[eventSource{"victim", corev1.EventTypeNormal}]); got != 1 {
		t.Errorf("%d of one event of another tenant are recorded", got)
	}
	const seconds = 10
	clock.SetTime(start.Add(seconds * time.Second))
	for range many {
		b.Emit(apiKeyIn("busy"), "Published", "Publish", "Published key")
	}
	if got := len(events[busy]); got != eventsBurst+seconds*eventsPerSecond {
		t.Errorf("%d events are recorded after %d seconds", got, seconds)
	}
}

// client-go remembers each event for minutes, whatever namespaces they are from.
func TestEmit_AllTenants(t *testing.T) {
	events := recorded{}
	b := &Base{Events: events, Clock: clocktesting.NewFakePassiveClock(start)}
	for n := range 2 * allEventsBurst {
		b.Emit(apiKeyIn(fmt.Sprint("shops-", n)), "Published", "Publish", "Published key")
	}
	if got := len(events); got != allEventsBurst {
		t.Errorf("%d events at once are recorded, want %d", got, allEventsBurst)
	}
}

// The API server refuses an Event with a note of more than 1024 bytes, as an error of the API server can have.
func TestWarn_LongNote(t *testing.T) {
	events := recorded{}
	b := &Base{Events: events, Clock: clocktesting.NewFakePassiveClock(start)}
	const longest = 1024
	b.Warn(apiKeyIn("shops"), "Failed", "Publish", "Failed: %s", strings.Repeat("100 % ", longest))
	got := events[eventSource{"shops", corev1.EventTypeWarning}]
	if len(got) != 1 || len(got[0]) > longest || !strings.HasPrefix(got[0], "Failed: 100 % 100 %") {
		t.Errorf("recorded %q", got)
	}
}
