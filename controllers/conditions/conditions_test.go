package conditions

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestConditions(t *testing.T) {
	for desc, tc := range map[string]struct {
		outcome Outcome
		want    map[string]metav1.ConditionStatus
	}{
		"ready":   {Ready("done"), map[string]metav1.ConditionStatus{"Ready": "True"}},
		"waiting": {Waiting("NotYet", "for %s", "it"), map[string]metav1.ConditionStatus{"Ready": "False", "Reconciling": "True"}},
		"stalled": {Stalled("Stuck", "on %s", "it"), map[string]metav1.ConditionStatus{"Ready": "False", "Stalled": "True"}},
		"failed":  {Failed(errors.New("no")), map[string]metav1.ConditionStatus{"Ready": "False", "Reconciling": "True"}},
	} {
		for before, existing := range map[string][]metav1.Condition{
			"nothing": nil,
			"waiting": After(nil, Waiting("Other", "for another").Notices(), 1, start),
			"stalled": After(nil, Stalled("Other", "on another").Notices(), 1, start),
		} {
			t.Run(desc+" after "+before, func(t *testing.T) {
				got := map[string]metav1.ConditionStatus{}
				for _, c := range After(existing, tc.outcome.Notices(), 2, start) {
					got[c.Type] = c.Status
					if c.Reason != tc.outcome.Reason || c.Message != tc.outcome.Message || c.ObservedGeneration != 2 {
						t.Errorf("%s says %s %q of generation %d", c.Type, c.Reason, c.Message, c.ObservedGeneration)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("conditions (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Conditions keep the time of their change.
func TestConditions_TransitionTime(t *testing.T) {
	first := After(nil, Waiting("A", "a").Notices(), 1, start)
	original := append([]metav1.Condition(nil), first...)
	second := After(first, Waiting("B", "b").Notices(), 2, start.Add(time.Hour))
	for _, c := range second {
		if !c.LastTransitionTime.Time.Equal(start) {
			t.Errorf("%s changed at %s although its status did not", c.Type, c.LastTransitionTime)
		}
	}
	if diff := cmp.Diff(original, first); diff != "" {
		t.Errorf("the existing conditions were changed in place (-before +after):\n%s", diff)
	}
	third := After(second, Ready("c").Notices(), 3, start.Add(2*time.Hour))
	if !third[0].LastTransitionTime.Time.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("Ready changed at %s", third[0].LastTransitionTime)
	}
}

// A cache drops longer messages, so that one would be written again and again.
func TestAfter_CutsALongMessage(t *testing.T) {
	for desc, message := range map[string]string{"ASCII": strings.Repeat("x", 1<<20), "no ASCII": strings.Repeat("é", 1<<10) + "é"} {
		got := After(nil, Ready(message).Notices(), 1, start)[0].Message
		if len(got) > MaxMessage || !utf8.ValidString(got) || !strings.HasPrefix(message, strings.TrimSuffix(got, "…")) || len(got) < MaxMessage-3 {
			t.Errorf("%s: %d bytes, valid: %t", desc, len(got), utf8.ValidString(got))
		}
	}
	if got := After(nil, Ready("short").Notices(), 1, start)[0].Message; got != "short" {
		t.Errorf("a short message became %q", got)
	}
}
