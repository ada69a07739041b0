package reconciler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLostRace(t *testing.T) {
	secrets, namespaces := schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "namespaces"}
	for desc, tc := range map[string]struct {
		err  error
		want bool
	}{
		"somebody changed it":    {apierrors.NewConflict(secrets, "a", errors.New("modified")), true},
		"somebody created it":    {apierrors.NewAlreadyExists(secrets, "a"), true},
		"somebody deleted it":    {apierrors.NewNotFound(secrets, "a"), true},
		"there is no namespace":  {apierrors.NewNotFound(namespaces, "credentials"), false},
		"it is not allowed":      {apierrors.NewForbidden(secrets, "a", errors.New("quota")), false},
		"the API server is away": {errors.New("connection refused"), false},
		"nothing went wrong":     {nil, false},
	} {
		t.Run(desc, func(t *testing.T) {
			err := tc.err
			if err != nil {
				err = fmt.Errorf("publish the key: %w", err)
			}
			if got := lostRace(err); got != tc.want {
				t.Errorf("lostRace(%v) = %t, want %t", err, got, tc.want)
			}
			result, failure := Finish(err)
			if tc.want && (failure != nil || result.RequeueAfter == 0) {
				t.Errorf("a lost race ends as %+v, %v; want another pass", result, failure)
			}
			if !tc.want && !errors.Is(failure, err) {
				t.Errorf("Finish returned %v", failure)
			}
		})
	}
}

// An object that is gone is no failure.
func TestFailure_ObjectIsGone(t *testing.T) {
	if result, err := Finish(fmt.Errorf("plan: %w", errGone)); err != nil || !result.IsZero() {
		t.Errorf("Finish(errGone) = %+v, %v; want nothing to do", result, err)
	}
}

func TestUntil(t *testing.T) {
	for desc, tc := range map[string]struct {
		times []time.Time
		want  time.Duration
	}{
		"nothing":              {},
		"never":                {[]time.Time{{}}, 0},
		"over":                 {[]time.Time{start.Add(-time.Second)}, 0},
		"now":                  {[]time.Time{start}, 0},
		"the first of two":     {[]time.Time{start.Add(time.Hour), start.Add(time.Minute)}, time.Minute},
		"one that is not over": {[]time.Time{start.Add(-time.Hour), start.Add(time.Minute), {}}, time.Minute},
	} {
		if got := Until(start, tc.times...); got != tc.want {
			t.Errorf("%s: %s, want %s", desc, got, tc.want)
		}
	}
}
