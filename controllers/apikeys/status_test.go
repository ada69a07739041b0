package apikeys

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

func TestStatus_RebuiltFromTheRecord(t *testing.T) {
	f := upToDate()
	f.apiKey.Status = v1alpha1.ApiKeyStatus{ObservedGeneration: -1}
	f.record.LastRotation.Time = now.Add(-time.Hour).Add(700 * time.Millisecond)
	want := v1alpha1.ApiKeyStatus{
		ObservedGeneration: 5,
		KeyID:              published.ID(thisUID),
		Prefix:             "mk_live_x",
		KeyGeneration:      2,
		LastRotation:       &v1alpha1.RotationStatus{Time: metav1.NewTime(now.Add(-time.Hour)), Cause: v1alpha1.RotationTrigger},
		ObservedTrigger:    "a",
	}
	got := newStatus(f, outcomeFor(f))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(v1alpha1.ApiKeyStatus{}, "Conditions")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// Without a record the status keeps the generation; with one, what a tenant wrote is repaired.
func TestStatus_Generation(t *testing.T) {
	f := upToDate().lost()
	f.merchantID = ""
	f.apiKey.Status.KeyGeneration = 7
	if got := newStatus(f, outcomeFor(f)).KeyGeneration; got != 7 {
		t.Errorf("without a record, keyGeneration is %d, want 7", got)
	}
	f = upToDate()
	f.apiKey.Status.KeyGeneration = 7
	if got := newStatus(f, outcomeFor(f)).KeyGeneration; got != 2 {
		t.Errorf("with a record of generation 2, keyGeneration is %d", got)
	}
}

func TestNextCheck(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  time.Duration // from now; 0: never
	}{
		"up to date":             {facts: upToDate()},
		"retention":              {facts: retained(upToDate(), 3700), want: 100 * time.Second},
		"retention over":         {facts: retained(upToDate(), 3600)},
		"a name to be free":      {facts: renamed(upToDate()), edit: func(f *facts) { f.targetTaken = true }, want: conflictRecheck},
		"no Merchant":            {facts: upToDate(), edit: func(f *facts) { f.merchantID = "" }, want: merchantWait},
		"an expiry":              {facts: expiring(upToDate(), time.Hour), want: time.Hour},
		"an expiry that is over": {facts: expiring(upToDate(), 0)},
		"retention comes at":     {facts: retained(upToDate(), 3610), edit: func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(86400)) }, want: 10 * time.Second},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			if got := nextCheck(f, outcomeFor(f)); got != tc.want {
				t.Errorf("checks again in %s, want %s", got, tc.want)
			}
		})
	}
}

// A pipeline applies in any order, so a missing Merchant is no failure at first.
func TestStatus_MerchantMissing(t *testing.T) {
	f := upToDate()
	f.merchantID, f.merchants = "", []string{"books", "tea"}
	pass := func(after time.Duration) (conditions []string, message string) {
		f.now = now.Add(after)
		f.apiKey.Status = newStatus(f, outcomeFor(f))
		for _, c := range f.apiKey.Status.Conditions {
			if c.Type == v1alpha1.ReconcilingCondition || c.Type == v1alpha1.StalledCondition {
				conditions = append(conditions, c.Type)
				message = c.Message
			}
		}
		return conditions, message
	}
	for _, after := range []time.Duration{0, time.Minute, merchantWait - time.Second} {
		if got, _ := pass(after); !slices.Equal(got, []string{v1alpha1.ReconcilingCondition}) {
			t.Errorf("after %s: %v", after, got)
		}
	}
	if got, want := nextCheck(f, outcomeFor(f)), time.Second; got != want {
		t.Errorf("checks again in %s, want %s", got, want)
	}
	got, message := pass(merchantWait)
	want := "Merchant coffee was deleted from namespace shops: the key gets 401 permanently, also if the Merchant is created again; its Merchants are books, tea. " +
		"Create the Merchant, or another ApiKey with the right merchantRef"
	if !slices.Equal(got, []string{v1alpha1.StalledCondition}) || message != want {
		t.Errorf("after ten minutes: %v: %s", got, message)
	}
	if got, _ := pass(3 * merchantWait); !slices.Equal(got, []string{v1alpha1.StalledCondition}) {
		t.Errorf("later: %v", got)
	}
	f.merchants = strings.Split("a,b,c,d,e,f,g,h,i,j,k,l", ",")
	if _, message := pass(4 * merchantWait); !strings.Contains(message, "a, b, c, d, e, f, g, h, i, j and 2 more. ") {
		t.Errorf("with many Merchants: %s", message)
	}
}

// The ten minutes count from when the Merchant is missed, not from a failure before.
func TestNextCheck_AfterAFailure(t *testing.T) {
	f := upToDate()
	f.apiKey.Status = newStatus(f, conditions.Failed(errors.New("the API server is away")))
	f.merchantID, f.now = "", now.Add(time.Hour)
	f.apiKey.Status = newStatus(f, outcomeFor(f))
	f.now = f.now.Add(time.Minute)
	if outcome := outcomeFor(f); !meta.IsStatusConditionTrue(newStatus(f, outcome).Conditions, v1alpha1.ReconcilingCondition) {
		t.Errorf("after a minute: %+v", outcome)
	}
}

// What could not be read says nothing about the key.
func TestStatus_ReadFails(t *testing.T) {
	f := upToDate()
	f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("old"), Prefix: "mk_live_o", ValidUntil: now.Add(time.Hour)}}
	f.apiKey.Status = newStatus(f, outcomeFor(f))
	want := f.apiKey.Status.DeepCopy()
	unread := facts{now: now, apiKey: f.apiKey, incomplete: true}
	got := newStatus(unread, conditions.Failed(errors.New("the API server is away")))
	got.Conditions, want.Conditions = dropReady(got.Conditions), dropReady(want.Conditions)
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func dropReady(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(all, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ReadyCondition || c.Type == v1alpha1.UsableCondition || c.Type == v1alpha1.ReconcilingCondition
	})
}

// Usable says whether requests with the key are accepted, whatever Ready says about the rest of the spec.
func TestStatus_Usable(t *testing.T) {
	state := func(state v1alpha1.ApiKeyState) func(*facts) {
		return func(f *facts) { f.apiKey.Spec.State, f.record.State = state, state }
	}
	stillAccepted := conditions.Stalled(v1alpha1.ReasonStillAccepted, "the key still works")
	for desc, tc := range map[string]struct {
		facts   facts
		edit    func(*facts)
		failure error
		outcome conditions.Outcome // instead of the one that the facts have
		ready   metav1.ConditionStatus
		usable  metav1.ConditionStatus
		reason  string // of Usable
	}{
		"published": {facts: upToDate(), ready: metav1.ConditionTrue, usable: metav1.ConditionTrue, reason: v1alpha1.ReasonPublished},
		"disabled": {
			facts: upToDate(), edit: state(v1alpha1.ApiKeyDisabled),
			ready: metav1.ConditionTrue, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonDisabled,
		},
		"disabled, and publishing that fails": {
			facts: upToDate(), edit: func(f *facts) { f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled }, failure: errors.New("refused"),
			ready: metav1.ConditionFalse, usable: metav1.ConditionTrue, reason: v1alpha1.ReasonFailed,
		},
		"expired": {
			facts: expiring(upToDate(), 0), edit: func(f *facts) { f.record.ExpiresAt = &f.now },
			ready: metav1.ConditionTrue, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonExpired,
		},
		"suspended": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = v1alpha1.MerchantSuspended },
			ready: metav1.ConditionTrue, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonMerchantSuspended,
		},
		"closed": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = v1alpha1.MerchantClosed },
			ready: metav1.ConditionTrue, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonMerchantClosed,
		},
		"a Merchant that is not published": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = "" },
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonMerchantNotPublished,
		},
		"no Merchant": {
			facts: upToDate(), edit: func(f *facts) { f.merchantID = "" },
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonMerchantNotFound,
		},
		"new, in a namespace that is full": {
			facts: upToDate(), edit: func(f *facts) {
				f.secret, f.record, f.delivered, f.fullUntil = nil, nil, nil, f.now.Add(time.Hour)
			},
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonTooManyDeleted,
		},
		"a taken Secret, and a key in force": {
			facts: renamed(upToDate()), edit: func(f *facts) { f.targetTaken = true },
			ready: metav1.ConditionFalse, usable: metav1.ConditionTrue, reason: v1alpha1.ReasonPublished,
		},
		"a taken Secret, and a disabled key": {
			facts: renamed(upToDate()), edit: func(f *facts) { f.targetTaken = true; state(v1alpha1.ApiKeyDisabled)(f) },
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonDisabled,
		},
		"a taken Secret, and no key": {
			facts: upToDate().lost().with(), edit: func(f *facts) { f.targetTaken = true },
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonSecretConflict,
		},
		"a write that fails, and a key in force": {
			facts: upToDate(), failure: errors.New("the API server is away"),
			ready: metav1.ConditionFalse, usable: metav1.ConditionTrue, reason: v1alpha1.ReasonPublished,
		},
		"a first issue that fails": {
			facts: upToDate().lost().with(), failure: errors.New("the API server is away"),
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonFailed,
		},
		"facts that cannot be read": {
			facts: upToDate(), edit: func(f *facts) { f.incomplete = true }, failure: errors.New("the API server is away"),
			ready: metav1.ConditionFalse, usable: metav1.ConditionUnknown, reason: v1alpha1.ReasonFailed,
		},
		"a restriction that is refused": {
			facts: upToDate(), edit: func(f *facts) { f.incomplete = true }, outcome: stillAccepted,
			ready: metav1.ConditionFalse, usable: metav1.ConditionTrue, reason: v1alpha1.ReasonStillAccepted,
		},
		"a restriction that is refused, and a disabled key": {
			facts: upToDate(), edit: func(f *facts) { f.incomplete = true; state(v1alpha1.ApiKeyDisabled)(f) }, outcome: stillAccepted,
			ready: metav1.ConditionFalse, usable: metav1.ConditionUnknown, reason: v1alpha1.ReasonStillAccepted,
		},
		"a restriction that is refused, and a suspended Merchant": {
			facts: upToDate(), edit: func(f *facts) { f.incomplete, f.merchantState = true, v1alpha1.MerchantSuspended }, outcome: stillAccepted,
			ready: metav1.ConditionFalse, usable: metav1.ConditionUnknown, reason: v1alpha1.ReasonStillAccepted,
		},
		"a record of a newer operator": {
			facts: upToDate(), edit: func(f *facts) { f.record, f.newer = nil, true },
			ready: metav1.ConditionFalse, usable: metav1.ConditionUnknown, reason: v1alpha1.ReasonNewerVersion,
		},
		"a record of a newer operator, and a disabled key": {
			facts: upToDate(), edit: func(f *facts) { f.record, f.newer, f.apiKey.Spec.State = nil, true, v1alpha1.ApiKeyDisabled },
			ready: metav1.ConditionFalse, usable: metav1.ConditionFalse, reason: v1alpha1.ReasonDisabled,
		},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			outcome := outcomeFor(f)
			if tc.failure != nil {
				outcome = conditions.Failed(tc.failure)
			}
			if tc.outcome.Reason != "" {
				outcome = tc.outcome
			}
			all := newStatus(f, outcome).Conditions
			ready, usable := meta.FindStatusCondition(all, v1alpha1.ReadyCondition), meta.FindStatusCondition(all, v1alpha1.UsableCondition)
			if ready.Status != tc.ready || usable.Status != tc.usable || usable.Reason != tc.reason || usable.Message == "" {
				t.Errorf("Ready %s, Usable %s, %s: %s", ready.Status, usable.Status, usable.Reason, usable.Message)
			}
		})
	}
}

func TestStatus_Delivered(t *testing.T) {
	for desc, tc := range map[string]struct {
		facts  facts
		edit   func(*facts)
		status metav1.ConditionStatus // empty: absent
		reason string
	}{
		"delivered":                {facts: upToDate(), status: metav1.ConditionTrue, reason: v1alpha1.ReasonDelivered},
		"under its former name":    {facts: renamed(upToDate()), status: metav1.ConditionTrue, reason: v1alpha1.ReasonDelivered},
		"deleted":                  {facts: upToDate().with(), status: metav1.ConditionFalse, reason: v1alpha1.ReasonNotDelivered},
		"of another generation":    {facts: upToDate().with(deliveredSecret("till-key", 1)), status: metav1.ConditionFalse, reason: v1alpha1.ReasonNotDelivered},
		"deleted by the retention": {facts: retained(upToDate().with(), 60), status: metav1.ConditionFalse, reason: v1alpha1.ReasonRetentionEnded},
		"rotated over HTTP": {
			facts: upToDate().with(), edit: func(f *facts) { f.record.LastRotation.Cause = v1alpha1.RotationAPI },
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonRotatedOverHTTP,
		},
		"not issued yet": {facts: upToDate().lost().with(), status: metav1.ConditionFalse, reason: v1alpha1.ReasonNotIssued},
		"of a newer operator": {
			facts: upToDate(), edit: func(f *facts) { f.record, f.newer = nil, true },
			status: metav1.ConditionUnknown, reason: v1alpha1.ReasonNewerVersion,
		},
		"externally generated": {facts: upToDate().external("mine")},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			got := delivery(f)
			if got == nil {
				got = &metav1.Condition{}
			}
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%s, %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}

// KeyLost lasts until the next rotation.
func TestStatus_KeyLost(t *testing.T) {
	recovered := func(f facts) facts {
		f.record.LastRotation.Cause = v1alpha1.RotationRecovery
		return f
	}
	for desc, tc := range map[string]struct {
		facts facts
		edit  func(*facts)
		want  string // its reason; empty: absent
	}{
		"up to date":                   {facts: upToDate()},
		"replaced":                     {facts: recovered(upToDate()), want: v1alpha1.ReasonKeyReplaced},
		"replaced, and status lost":    {facts: recovered(upToDate()), edit: func(f *facts) { f.apiKey.Status = v1alpha1.ApiKeyStatus{} }, want: v1alpha1.ReasonKeyReplaced},
		"lost, and not replaced":       {facts: upToDate().lost(), want: v1alpha1.ReasonKeyNotReplaced},
		"never issued":                 {facts: upToDate().lost().with(), edit: func(f *facts) { f.apiKey.Status, f.seen = v1alpha1.ApiKeyStatus{}, knownVersion{} }},
		"never issued, and forged":     {facts: upToDate().lost().with(), edit: func(f *facts) { f.younger, f.seen = true, knownVersion{} }},
		"of a newer operator":          {facts: upToDate(), edit: func(f *facts) { f.record, f.newer = nil, true }},
		"externally generated":         {facts: recovered(upToDate().external("mine")), edit: func(f *facts) { f.record.Current.Prefix, f.apiKey.Status.Prefix = "", "" }},
		"another ApiKey's, and forged": {facts: upToDate(), edit: func(f *facts) { f.younger, f.record.Source.UID = true, "another" }},
		"another ApiKey's, and no key": {facts: upToDate(), edit: func(f *facts) { f.record.Source.UID, f.apiKey.Status.KeyGeneration = "another", 0 }},
	} {
		t.Run(desc, func(t *testing.T) {
			f := tc.facts
			if tc.edit != nil {
				tc.edit(&f)
			}
			got := keyLost(f)
			if got == nil {
				got = &metav1.Condition{}
			}
			if got.Reason != tc.want {
				t.Errorf("%s: %s, want %s", got.Reason, got.Message, tc.want)
			}
		})
	}
}

// warner is a Reconciler whose events a test reads.
type warner struct {
	Reconciler
	recorder.EventRecorder

	emitted []string // the reasons
}

func newWarner() *warner {
	w := &warner{}
	w.Base = &reconciler.Base{Events: w, Clock: clocktesting.NewFakePassiveClock(now)}
	return w
}

// Eventf implements recorder.EventRecorder.
func (w *warner) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	w.emitted = append(w.emitted, reason)
}

// pass reports the facts with an outcome, and returns the reasons of the warnings.
func (w *warner) pass(f facts, outcome conditions.Outcome) []string {
	w.emitted = nil
	f.warned = w.Warned(f.apiKey, f.apiKey.Status.Conditions)
	w.notify(f, outcome)
	return w.emitted
}

// What a tenant writes into a status neither silences a warning nor repeats one. Only what it had before the first pass of this operator
// counts, if the ApiKey is older than that.
func TestWarn_StatusOfATenant(t *testing.T) {
	stalled := conditions.Stalled(v1alpha1.ReasonSecretConflict, "taken")
	forge := func(f facts, outcome conditions.Outcome) facts {
		f.apiKey = f.apiKey.DeepCopy()
		f.apiKey.Status.Conditions = conditions.After(nil, outcome.Notices(), 5, now)
		return f
	}
	t.Run("silences nothing", func(t *testing.T) {
		w, f := newWarner(), upToDate()
		w.pass(f, conditions.Ready("fine"))
		if got := w.pass(forge(f, stalled), stalled); !slices.Equal(got, []string{v1alpha1.ReasonSecretConflict}) {
			t.Errorf("emitted %v", got)
		}
	})
	t.Run("silences nothing of a new ApiKey", func(t *testing.T) {
		w, f := newWarner(), upToDate()
		w.pass(f, conditions.Ready("fine"))
		f.apiKey = f.apiKey.DeepCopy()
		f.apiKey.UID, f.apiKey.CreationTimestamp, f.younger = "another", metav1.NewTime(now.Add(time.Second)), true
		if got := w.pass(forge(f, stalled), stalled); !slices.Equal(got, []string{v1alpha1.ReasonSecretConflict}) {
			t.Errorf("emitted %v", got)
		}
	})
	t.Run("repeats nothing", func(t *testing.T) {
		w, f := newWarner(), upToDate()
		w.pass(f, stalled)
		for _, outcome := range []conditions.Outcome{conditions.Ready("forged"), conditions.Stalled("Other", "forged")} {
			if got := w.pass(forge(f, outcome), stalled); len(got) != 0 {
				t.Errorf("emitted %v", got)
			}
		}
	})
	t.Run("of an operator before this one", func(t *testing.T) {
		if got := newWarner().pass(forge(upToDate(), stalled), stalled); len(got) != 0 {
			t.Errorf("emitted %v", got)
		}
	})
	t.Run("another reason, and the first one again", func(t *testing.T) {
		w, f := newWarner(), upToDate()
		for _, outcome := range []conditions.Outcome{stalled, conditions.Failed(errors.New("away")), stalled} {
			if got := w.pass(f, outcome); !slices.Equal(got, []string{outcome.Reason}) {
				t.Errorf("emitted %v, want %s", got, outcome.Reason)
			}
		}
	})
	t.Run("what was not read has not ended", func(t *testing.T) {
		w, f := newWarner(), expiring(upToDate(), time.Hour)
		unread := facts{now: now, apiKey: f.apiKey, incomplete: true}
		for i, want := range [][]string{{v1alpha1.ExpiringSoonCondition}, {v1alpha1.ReasonFailed}, nil} {
			facts, outcome := f, conditions.Ready("fine")
			if i == 1 {
				facts, outcome = unread, conditions.Failed(errors.New("away"))
			}
			if got := w.pass(facts, outcome); !slices.Equal(got, want) {
				t.Errorf("pass %d emitted %v, want %v", i, got, want)
			}
		}
	})
}

func expiring(f facts, after time.Duration) facts {
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(after)}
	return f
}

// A key that is refused is rotated and published like any other.
func TestStatus_KeyDoesNotWork(t *testing.T) {
	decisions{
		"disabled, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) {
				f.apiKey.Spec.State, f.apiKey.Spec.Rotation.Trigger = v1alpha1.ApiKeyDisabled, "b"
			},
			want: decision{Outcome: v1alpha1.ReasonDisabled, Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
		"expired": {
			facts: expiring(upToDate(), 0), want: decision{Outcome: v1alpha1.ReasonExpired, Repair: true},
		},
		"about to expire": {
			facts: expiring(upToDate(), time.Nanosecond), want: decision{Repair: true},
		},
		"its Merchant is suspended": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState = v1alpha1.MerchantSuspended },
			want: decision{Outcome: v1alpha1.ReasonMerchantSuspended},
		},
		"its Merchant is closed, and a new trigger": {
			facts: upToDate(), edit: func(f *facts) { f.merchantState, f.apiKey.Spec.Rotation.Trigger = v1alpha1.MerchantClosed, "b" },
			want: decision{Outcome: v1alpha1.ReasonMerchantClosed, Issue: v1alpha1.RotationTrigger, Overlap: time.Hour, Generation: 3},
		},
	}.check(t)
}

func TestUpcoming(t *testing.T) {
	const day = 24 * time.Hour
	for desc, test := range map[string]struct {
		expiresIn time.Duration // 0: never
		every     time.Duration // of a key that was rotated an hour ago; 0: no schedule
		want      []string
	}{
		"nothing":                      {0, 0, nil},
		"an expiry a week ahead":       {7 * day, 0, []string{v1alpha1.ExpiringSoonCondition}},
		"an expiry just further":       {7*day + time.Second, 0, nil},
		"an expiry that is over":       {-day, 0, nil},
		"a schedule far ahead":         {0, 90 * day, nil},
		"a schedule nearly elapsed":    {0, time.Hour + 5*time.Minute, []string{v1alpha1.RotatingSoonCondition}},
		"a schedule of a day, halfway": {0, 2 * time.Hour, nil},
		"both":                         {day, time.Hour + 5*time.Minute, []string{v1alpha1.ExpiringSoonCondition, v1alpha1.RotatingSoonCondition}},
	} {
		t.Run(desc, func(t *testing.T) {
			f, w := upToDate(), newWarner()
			if test.expiresIn != 0 {
				f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(test.expiresIn)}
			}
			if test.every != 0 {
				f.apiKey.Spec.Rotation.EverySeconds = new(int32(test.every / time.Second))
			}
			for _, want := range [][]string{test.want, nil} { // it is emitted once
				if diff := cmp.Diff(want, w.pass(f, conditions.Ready("fine"))); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			}
			f.apiKey.Status = newStatus(f, conditions.Ready("fine"))
			var types []string
			for _, c := range f.apiKey.Status.Conditions {
				if !slices.Contains([]string{v1alpha1.ReadyCondition, v1alpha1.UsableCondition, v1alpha1.DeliveredCondition, v1alpha1.OldKeyInUseCondition}, c.Type) { // those of every key
					types = append(types, c.Type)
				}
			}
			if diff := cmp.Diff(test.want, types); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// What is upcoming is reported in time, and taken back.
func TestUpcoming_InTime(t *testing.T) {
	f := upToDate()
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(30 * 24 * time.Hour)}
	if got, want := nextCheck(f, outcomeFor(f)), 23*24*time.Hour; got != want {
		t.Errorf("checks again in %s, want %s, a week before the expiry", got, want)
	}
	f.now = now.Add(25 * 24 * time.Hour)
	f.apiKey.Status = newStatus(f, conditions.Ready("fine"))
	f.apiKey.Spec.ExpiresAt = nil
	for _, c := range newStatus(f, conditions.Ready("fine")).Conditions {
		if c.Type == v1alpha1.ExpiringSoonCondition {
			t.Error("the condition stays although the expiry was taken back")
		}
	}
}
