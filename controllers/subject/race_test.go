package subject

import (
	"errors"
	"fmt"
	"testing"

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
			if got := LostRace(err); got != tc.want {
				t.Errorf("LostRace(%v) = %t, want %t", err, got, tc.want)
			}
			result, failure := Settle(err)
			if tc.want && (failure != nil || result.RequeueAfter == 0) {
				t.Errorf("a lost race ends as %+v, %v; want another look", result, failure)
			}
			if !tc.want && !errors.Is(failure, err) {
				t.Errorf("Settle returned %v", failure)
			}
		})
	}
}

func TestAnObjectThatIsGoneIsNoFailure(t *testing.T) {
	if result, err := Settle(fmt.Errorf("plan: %w", ErrGone)); err != nil || !result.IsZero() {
		t.Errorf("Settle(ErrGone) = %+v, %v; want nothing to do", result, err)
	}
}
