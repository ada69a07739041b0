package apikeys

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
)

// rotated are the facts of a key whose old one is valid for some time, and whose uses were read a minute ago and recorded for long.
func rotated(left time.Duration) facts {
	f := upToDate()
	f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("old"), Prefix: "mk_live_old", ValidUntil: now.Add(left)}}
	f.uses = lastuse.Evidence{ReadTime: now.Add(-time.Minute), RecordingSince: now.Add(-24 * time.Hour)}
	return f
}

// uses are those of a key, so long ago.
func uses(key string, ago time.Duration) published.DigestUses {
	return published.DigestUses(fmt.Sprintf("%s %d", published.DigestTag(apikey.NewDigest(key)), now.Add(-ago).Unix()))
}

func (f facts) used(all ...published.DigestUses) facts {
	for _, of := range all {
		f.uses.Uses, _ = f.uses.Uses.Merge(of, time.Second)
	}
	return f
}

func TestOldKeyInUse(t *testing.T) {
	const day = 24 * time.Hour
	tooMany := rotated(day)
	for i := range published.MaxDigestUses {
		tooMany = tooMany.used(uses(fmt.Sprint("other", i), time.Hour))
	}
	for name, test := range map[string]struct {
		facts          facts
		change         func(*facts)
		status, reason string
	}{
		"no old key":                    {upToDate(), nil, "False", "NoOldKey"},
		"an overlap that is over":       {rotated(-time.Second).used(uses("old", time.Minute)), nil, "False", "NoOldKey"},
		"never used":                    {rotated(day), nil, "False", "OldKeyUnused"},
		"used five minutes ago":         {rotated(day).used(uses("old", 5*time.Minute)), nil, "True", "OldKeyUsed"},
		"used nearly two hours ago":     {rotated(day).used(uses("old", 2*time.Hour)), nil, "True", "OldKeyUsed"}, // of the time of the read
		"used two hours ago":            {rotated(day).used(uses("old", 2*time.Hour+time.Minute)), nil, "False", "OldKeyUnused"},
		"only the current one is used":  {rotated(day).used(uses("current", 0), uses("old", 3*time.Hour)), nil, "False", "OldKeyUnused"},
		"used, and ends soon":           {rotated(time.Hour).used(uses("old", time.Minute)), nil, "True", "OverlapEndsSoon"},
		"not used, and ends soon":       {rotated(time.Hour).used(uses("old", 3*time.Hour)), nil, "False", "OldKeyUnused"},
		"the ApiKey expires before":     {rotated(day).used(uses("old", time.Minute)), func(f *facts) { expireIn(f, time.Hour) }, "True", "OverlapEndsSoon"},
		"the ApiKey has expired":        {rotated(day).used(uses("old", time.Minute)), func(f *facts) { expireIn(f, -time.Hour) }, "False", "NoOldKey"},
		"a disabled ApiKey":             {rotated(day).used(uses("old", time.Minute)), func(f *facts) { f.record.State = v1alpha1.ApiKeyDisabled }, "False", "NoOldKey"},
		"nothing is known of this key":  {rotated(day), func(f *facts) { f.uses = lastuse.Evidence{} }, "Unknown", "UsesUnknown"},
		"no dispatcher for an hour":     {rotated(day), func(f *facts) { f.uses.ReadTime = now.Add(-time.Hour) }, "Unknown", "UsesUnknown"},
		"the same, but used before":     {rotated(day).used(uses("old", time.Hour)), func(f *facts) { f.uses.ReadTime = now.Add(-time.Hour) }, "True", "OldKeyUsed"},
		"the same, for three hours":     {rotated(day).used(uses("old", 3*time.Hour)), func(f *facts) { f.uses.ReadTime = now.Add(-3 * time.Hour) }, "Unknown", "UsesUnknown"},
		"read a little late":            {rotated(day).used(uses("old", 2*time.Hour)), func(f *facts) { f.uses.ReadTime = now.Add(-29 * time.Minute) }, "True", "OldKeyUsed"},
		"read in the future":            {rotated(day), func(f *facts) { f.uses.ReadTime = now.Add(time.Hour) }, "Unknown", "UsesUnknown"},
		"a flushed Redis":               {rotated(day), func(f *facts) { f.uses.RecordingSince = now.Add(-2 * time.Hour) }, "Unknown", "UsesUnknown"},
		"a flushed Redis, used since":   {rotated(day).used(uses("old", 0)), func(f *facts) { f.uses.RecordingSince = now }, "True", "OldKeyUsed"},
		"recorded for the window":       {rotated(day), func(f *facts) { f.uses.RecordingSince = now.Add(-2*time.Hour - time.Minute) }, "False", "OldKeyUnused"},
		"too many digests":              {tooMany, nil, "Unknown", "UsesUnknown"},
		"the clock is wrong":            {rotated(day), func(f *facts) { f.clockWrong = true }, "Unknown", "UsesUnknown"},
		"a rotation that was not made":  {upToDate(), func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" }, "Unknown", "RotationPending"},
		"the same, and an old key used": {rotated(day).used(uses("old", 0)), func(f *facts) { f.apiKey.Spec.Rotation.Trigger = "b" }, "True", "OldKeyUsed"},
		"nobody has a key yet":          {upToDate().unissued(), nil, "", ""},
		"the record is lost":            {upToDate().lost(), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.facts
			if test.change != nil {
				test.change(&f)
			}
			got := oldKeyInUse(f)
			if got == nil {
				got = new(metav1.Condition)
			}
			if string(got.Status) != test.status || got.Reason != test.reason {
				t.Errorf("%s, %s (%s); want %s, %s", got.Status, got.Reason, got.Message, test.status, test.reason)
			}
		})
	}
}

func expireIn(f *facts, left time.Duration) {
	f.apiKey.Spec.ExpiresAt = &metav1.Time{Time: now.Add(left)}
	f.record.ExpiresAt = &f.apiKey.Spec.ExpiresAt.Time
}

// Of several old keys one that is used decides, and then one of which nothing is known.
func TestOldKeyInUse_SeveralOldKeys(t *testing.T) {
	f := rotated(24 * time.Hour)
	f.record.Previous = append(f.record.Previous, published.Previous{Digest: apikey.NewDigest("older"), Prefix: "mk_live_older", ValidUntil: now.Add(12 * time.Hour)})
	f = f.used(uses("older", time.Hour))
	if got := oldKeyInUse(f); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "mk_live_older") {
		t.Errorf("%+v", got)
	}
	f = f.used(uses("old", time.Hour))
	f.record.Previous[1].ValidUntil = now.Add(30 * time.Minute)
	if got := oldKeyInUse(f); got.Reason != v1alpha1.ReasonOverlapEndsSoon || !strings.Contains(got.Message, "mk_live_older") {
		t.Errorf("when the older one ends soon: %+v", got)
	}
}

// What a tenant writes into the status decides nothing, and is replaced.
func TestOldKeyInUse_StatusIsNotBelieved(t *testing.T) {
	f := rotated(24*time.Hour).used(uses("old", 5*time.Minute), uses("current", time.Minute))
	future := metav1.NewTime(now.Add(time.Hour))
	f.apiKey.Status.LastUsedTime = &future
	f.apiKey.Status.PreviousKeys = []v1alpha1.PreviousKey{{Prefix: "mk_live_old", ValidUntil: metav1.NewTime(now.Add(24 * time.Hour)), LastUsedTime: &future}}
	f.apiKey.Status.Conditions = []metav1.Condition{{Type: v1alpha1.OldKeyInUseCondition, Status: metav1.ConditionFalse, Reason: "OldKeyUnused"}}
	status := newStatus(f, conditions.Ready("fine"))
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.OldKeyInUseCondition) {
		t.Errorf("conditions %+v", status.Conditions)
	}
	if got := status.LastUsedTime; got == nil || !got.Time.Equal(now.Add(-time.Minute)) {
		t.Errorf("the current key was used at %s", got)
	}
	if got := status.PreviousKeys[0].LastUsedTime; got == nil || !got.Time.Equal(now.Add(-5*time.Minute)) {
		t.Errorf("the old key was used at %s", got)
	}
}

// Every use of each key is a write of its status: the current key's is a step of an hour late, that of an old one ten minutes. After a rotation
// the use is that of the old key.
func TestStatus_LastUsedTime(t *testing.T) {
	f := rotated(24*time.Hour).used(uses("current", 59*time.Minute), uses("old", 2*time.Hour))
	f.apiKey.Status = newStatus(f, conditions.Ready("fine"))
	f = f.used(uses("current", 0), uses("old", 2*time.Hour-9*time.Minute))
	status := newStatus(f, conditions.Ready("fine"))
	if !status.LastUsedTime.Equal(f.apiKey.Status.LastUsedTime) || !status.PreviousKeys[0].LastUsedTime.Equal(f.apiKey.Status.PreviousKeys[0].LastUsedTime) {
		t.Errorf("within the step: %v, %v", status.LastUsedTime, status.PreviousKeys)
	}
	f = f.used(uses("current", -time.Minute), uses("old", 2*time.Hour-10*time.Minute))
	status = newStatus(f, conditions.Ready("fine"))
	if !status.LastUsedTime.Time.Equal(now.Add(time.Minute)) || !status.PreviousKeys[0].LastUsedTime.Time.Equal(now.Add(10*time.Minute-2*time.Hour)) {
		t.Errorf("after the step: %v, %v", status.LastUsedTime, status.PreviousKeys)
	}
	f.uses.Uses = uses("another", 0)
	if status = newStatus(f, conditions.Ready("fine")); status.LastUsedTime != nil || status.PreviousKeys[0].LastUsedTime != nil {
		t.Errorf("without a use: %v, %v", status.LastUsedTime, status.PreviousKeys)
	}
}

// During an overlap the condition is looked at every five minutes, an hour before the end, and at the end.
func TestNextCheck_OldKey(t *testing.T) {
	for name, test := range map[string]struct{ left, want time.Duration }{
		"far ahead":          {24 * time.Hour, 5 * time.Minute},
		"before the warning": {time.Hour + time.Minute, time.Minute},
		"before the end":     {2 * time.Minute, 2 * time.Minute},
	} {
		f := rotated(test.left)
		if got := nextCheck(f, outcomeFor(f)); got != test.want {
			t.Errorf("%s: in %s, want %s", name, got, test.want)
		}
	}
}

// The metric has old keys that end within the hour while they are used, or may be, until they have ended.
func TestOverlapsEnding(t *testing.T) {
	clock := now
	o := newOverlaps(func() time.Time { return clock })
	expect := func(desc string, used, unknown int) {
		t.Helper()
		want := fmt.Sprintf(`# HELP merchant_operator_overlaps_ending Old keys that are refused within the hour, by use: used (within two hours), or unknown.
# TYPE merchant_operator_overlaps_ending gauge
merchant_operator_overlaps_ending{use="unknown"} %d
merchant_operator_overlaps_ending{use="used"} %d
`, unknown, used)
		if err := testutil.CollectAndCompare(o, strings.NewReader(want)); err != nil {
			t.Errorf("%s: %v", desc, err)
		}
	}
	expect("nothing", 0, 0)
	o.overlapsEnd("a", endings(rotated(30*time.Minute).used(uses("old", time.Minute))))
	o.overlapsEnd("b", endings(rotated(2*time.Hour).used(uses("old", time.Minute))))
	o.overlapsEnd("c", endings(rotated(30*time.Minute)))
	expect("one is used and ends soon", 1, 0)
	lost := rotated(40 * time.Minute)
	lost.uses = lastuse.Evidence{}
	o.overlapsEnd("d", endings(lost))
	expect("of one nothing is known", 1, 1)
	clock = now.Add(30 * time.Minute)
	expect("the first has ended", 0, 1)
	o.forget("d")
	expect("the second is deleted", 0, 0)
}
