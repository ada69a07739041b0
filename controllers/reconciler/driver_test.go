package reconciler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var (
	errRefused = errors.New("refused by an admission policy")
	errRace    = apierrors.NewConflict(schema.GroupResource{Resource: "apikeys"}, "till", nil)
)

// steps is a Kind that notes its steps. What a step returns is in fails, by its name.
type steps struct {
	done  []string
	due   bool // a restriction
	fails map[string]error
}

func (s *steps) step(name string) error {
	s.done = append(s.done, name)
	return s.fails[name]
}

func (s *steps) ReadPublished(_ context.Context, from Source, _ *corev1.ConfigMap) (string, error) {
	if from.IsCached() {
		return "cached", s.step("read the caches")
	}
	return "uncached", s.step("read the API server")
}

func (s *steps) Restriction(facts string) func(context.Context) error {
	if !s.due {
		return nil
	}
	return func(context.Context) error { return s.step("restrict, " + facts) }
}

func (s *steps) ReportUnrestricted(context.Context, string, error) error {
	return s.step("report the restriction")
}

func (s *steps) Update(context.Context, string, bool) (string, error) { return "", s.step("update") }

func (s *steps) Report(_ context.Context, _ string, failure error) (time.Duration, error) {
	if failure != nil {
		return time.Hour, s.step("report the failure")
	}
	return time.Hour, s.step("report")
}

func (s *steps) Revoke(context.Context, *corev1.ConfigMap) ([]string, error) {
	return nil, s.step("revoke")
}

func (s *steps) ReportUnrevoked(context.Context, *corev1.ConfigMap, error) error {
	return s.step("report the revocation")
}

func (s *steps) ReportHeld(context.Context, *corev1.ConfigMap) error {
	return s.step("report that it is held")
}

// The steps of a reconciliation, and what is done after a failed one. A lost race is never reported: the next reconciliation sees the version that
// won.
func TestDriver(t *testing.T) {
	cached, uncached, restrict := "read the caches", "read the API server", "restrict, uncached"
	for name, test := range map[string]struct {
		due, deleted bool
		fails        map[string]error
		want         []string
		again        time.Duration
		err          error
	}{
		"nothing to restrict":          {want: []string{cached, "update", "report"}, again: time.Hour},
		"a restriction":                {due: true, want: []string{cached, uncached, restrict}, again: AfterWrite},
		"a restriction that fails":     {due: true, fails: map[string]error{restrict: errRefused}, want: []string{cached, uncached, restrict, "report the restriction"}, err: errRefused},
		"a restriction, a lost race":   {due: true, fails: map[string]error{restrict: errRace}, want: []string{cached, uncached, restrict}, again: afterRace},
		"a restriction, unread":        {due: true, fails: map[string]error{uncached: errRefused}, want: []string{cached, uncached, "report the restriction"}, err: errRefused},
		"caches that cannot be read":   {fails: map[string]error{cached: errRefused}, want: []string{cached}, err: errRefused},
		"an update that fails":         {fails: map[string]error{"update": errRefused}, want: []string{cached, "update", "report the failure"}, err: errRefused},
		"an update, a lost race":       {fails: map[string]error{"update": errRace}, want: []string{cached, "update"}, again: afterRace},
		"a report, a lost race":        {fails: map[string]error{"report": errRace}, want: []string{cached, "update", "report"}, again: afterRace},
		"a revocation that fails":      {deleted: true, fails: map[string]error{"revoke": errRefused}, want: []string{"revoke", "report the revocation"}, err: errRefused},
		"a revocation, a lost race":    {deleted: true, fails: map[string]error{"revoke": errRace}, want: []string{"revoke"}, again: afterRace},
		"a deleted object, at its end": {deleted: true, want: []string{"revoke"}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := &steps{due: test.due, fails: test.fails}
			driver := Driver[*corev1.ConfigMap, string]{Base: &Base{Clock: clocktesting.NewFakePassiveClock(time.Now())}, Kind: kind}
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "till", Finalizers: []string{v1alpha1.Finalizer}}}
			if test.deleted {
				object.DeletionTimestamp, object.Finalizers = &metav1.Time{Time: time.Now()}, nil
			}
			result, err := driver.Reconcile(t.Context(), object)
			if !slices.Equal(kind.done, test.want) || result.RequeueAfter != test.again || !errors.Is(err, test.err) {
				t.Errorf("%q, again after %s, %v; want %q, %s, %v", kind.done, result.RequeueAfter, err, test.want, test.again, test.err)
			}
		})
	}
}
